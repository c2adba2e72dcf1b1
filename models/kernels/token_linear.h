#pragma once

#include <torch/types.h>

// B images  S tokens  P new tokens  C width
namespace shoal {

/// A linear layer over tokens: y_b = W x_b + b for each image, [B, S, C] -> [B, P, C]; every
/// channel is mapped alike. weight [P, S], bias [P]. x is contiguous; nothing is transposed.
/// The parameters are cast to x's dtype, and their gradients are of their own. Differentiable; B
/// may be 0.
torch::Tensor token_linear(const torch::Tensor& x_BSC, const torch::Tensor& weight,
                           const torch::Tensor& bias);

/// One matrix for all images, without a copy: [P, S] -> [B, P, S].
inline torch::Tensor for_images(const torch::Tensor& matrix, int64_t num_images) {
  return matrix.unsqueeze(0).expand({num_images, -1, -1});
}

}  // namespace shoal
