#pragma once

#include <torch/types.h>

#include "models/blocks/dropout.h"
#include "runtime/random/step_context.h"

// B sequences  S tokens  N heads  H head width
namespace shoal {

struct DropoutAttention {
  double scale;     ///< of the logits
  Dropout dropout;  ///< of the probabilities, keyed as a tensor [B, N, S, S]
  StepContext step;
};

/// dropout(softmax(scale q kᵀ)) v of a token over itself and those before it. LibTorch's fused
/// kernels compute the same with draws of LibTorch's generator, which depend on the rank.
///
/// Shapes: query, key, value [B, N, S, H] -> [B, N, S, H]. Probabilities are float32 where these
/// are bfloat16. Computed for a few sequences at a time and again in the backward pass, so that
/// S x S probabilities exist of these alone.
torch::Tensor attend_with_dropout(const torch::Tensor& query_BNSH, const torch::Tensor& key_BNSH,
                                  const torch::Tensor& value_BNSH, const DropoutAttention& options);

}  // namespace shoal
