#pragma once

#include <torch/types.h>

#include "models/blocks/dropout.h"
#include "runtime/random/step_context.h"

// B sequences  S tokens  N heads  H head width
namespace shoal {

/// How dropout attention is computed.
struct DropoutAttention {
  double scale = 1.0;  ///< of the logits
  Dropout dropout;     ///< of the probabilities, keyed as a tensor [B, N, S, S]
  StepContext step;
};

/// dropout(softmax(scale q kᵀ)) v of a token over itself and those before it. LibTorch's fused
/// kernels compute the same with draws of LibTorch's generator, which depend on the rank.
///
/// Shapes: query, key, value [B, N, S, H] -> [B, N, S, H]. With bfloat16 inputs the logits are
/// rounded to bfloat16, unlike in LibTorch's fused kernels; the softmax is float32. Computed for a
/// few sequences at a time and again in the backward pass, so that tensors of S x S, up to six of
/// them, exist for these sequences only.
torch::Tensor attend_with_dropout(const torch::Tensor& query_BNSH, const torch::Tensor& key_BNSH,
                                  const torch::Tensor& value_BNSH, const DropoutAttention& options);

}  // namespace shoal
