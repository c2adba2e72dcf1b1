#pragma once

#include <torch/types.h>

#include "models/blocks/dropout.h"
#include "runtime/random/step_context.h"

// B sequences  S tokens  N heads  H head width
namespace shoal {

/// Parameters of causal attention with dropout on its probabilities.
struct DropoutAttention {
  double scale = 1.0;  ///< factor of the logits
  Dropout dropout;     ///< of the probabilities; draws are keyed as for a tensor [B, N, S, S]
  StepContext step;
};

/// Causal attention dropout(softmax(scale q kᵀ)) v with reproducible dropout: LibTorch's fused
/// kernels draw from LibTorch's generator instead, whose values depend on the rank.
///
/// Shapes: query, key, value [B, N, S, H] -> [B, N, S, H]. With bfloat16 inputs the logits are
/// rounded to bfloat16, unlike in LibTorch's fused kernels; the softmax is float32. To save memory,
/// both passes compute a few sequences at a time: up to six tensors of S x S exist for these few
/// only. The backward pass computes the probabilities again.
torch::Tensor attend_with_dropout(const torch::Tensor& query_BNSH, const torch::Tensor& key_BNSH,
                                  const torch::Tensor& value_BNSH, const DropoutAttention& options);

}  // namespace shoal
