#pragma once

#include <torch/types.h>

#include "models/blocks/dropout.h"
#include "runtime/random/step_context.h"

// B sequences  S tokens  N heads  H head width
namespace shoal {

/// Options of dropout attention.
struct DropoutAttention {
  double scale = 1.0;  ///< factor of the logits
  Dropout dropout;     ///< dropout of the probabilities, keyed as a tensor [B, N, S, S]
  StepContext step;
};

/// dropout(softmax(scale q kᵀ)) v of a token over itself and earlier ones. LibTorch's fused kernels
/// are not used, since their draws depend on the rank.
///
/// Shapes: query, key, value [B, N, S, H] -> [B, N, S, H]. With bfloat16 inputs the logits are
/// rounded to bfloat16, unlike in LibTorch's fused kernels; the softmax is float32. Computed for a
/// few sequences at a time and recomputed in the backward pass, so that S x S tensors, up to six,
/// exist for these sequences only.
torch::Tensor attend_with_dropout(const torch::Tensor& query_BNSH, const torch::Tensor& key_BNSH,
                                  const torch::Tensor& value_BNSH, const DropoutAttention& options);

}  // namespace shoal
