#pragma once

#include <torch/types.h>

#include "runtime/module/linear.h"

// B images  S tokens  P new tokens  C width
namespace shoal {

/// A linear layer over the tokens of each channel: y_b = W x_b + b for each image, [B, S, C] -> [B,
/// P, C]. weight [P, S], bias [P]. x is contiguous and not transposed. The parameters are cast to
/// x's dtype; their gradients have the parameters' dtype. Differentiable; B may be 0.
torch::Tensor token_linear(const torch::Tensor& x_BSC, const torch::Tensor& weight,
                           const torch::Tensor& bias);
/// token_linear with the layer's parameters or, unless it is dense(), its forward on transposed
/// images.
torch::Tensor token_linear(const torch::Tensor& x_BSC, const LinearImpl& layer);

}  // namespace shoal
