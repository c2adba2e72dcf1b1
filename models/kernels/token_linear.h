#pragma once

#include <torch/types.h>

#include "runtime/module/linear.h"

// B images  S tokens  P new tokens  C width
namespace shoal {

/// Linear layer across tokens (Mixer's token mixing), applied to each channel: y_b = W x_b + b, [B,
/// S, C] -> [B, P, C]. weight [P, S], bias [P]. x must be contiguous and is not transposed.
/// Parameters are cast to x's dtype; their gradients keep theirs. Differentiable; B may be 0.
torch::Tensor token_linear(const torch::Tensor& x_BSC, const torch::Tensor& weight,
                           const torch::Tensor& bias);
/// token_linear with the parameters of `layer`; a layer that is not dense(), such as a sparse one,
/// computes its own forward on transposed x.
torch::Tensor token_linear(const torch::Tensor& x_BSC, const LinearImpl& layer);

}  // namespace shoal
