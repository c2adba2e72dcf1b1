#pragma once

#include <torch/types.h>

// B images  S tokens  C width
namespace shoal {

/// x + transpose(y) in one pass: [B, S, C] + [B, C, S] -> [B, S, C], contiguous. Differentiable.
torch::Tensor transpose_add(const torch::Tensor& x_BSC, const torch::Tensor& y_BCS);

}  // namespace shoal
