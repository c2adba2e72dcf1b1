#pragma once

#include <torch/types.h>

#include "runtime/module/linear.h"

// B images  S tokens  P new tokens  C width
namespace shoal {

/// Linear layer across tokens, applied to each channel: y_b = W x_b + b, [B, S, C] -> [B, P, C].
/// weight [P, S], bias [P]. x must be contiguous and is not transposed. Parameters are cast to x's
/// dtype; their gradients keep the parameters' dtype. Differentiable; B may be 0.
torch::Tensor token_linear(const torch::Tensor& x_BSC, const torch::Tensor& weight,
                           const torch::Tensor& bias);
/// The same with the layer's parameters, or with its forward on transposed images if it is not
/// dense.
torch::Tensor token_linear(const torch::Tensor& x_BSC, const LinearImpl& layer);

}  // namespace shoal
