#pragma once

#include <torch/types.h>

#include "sparse/kernels/sparse_layout.h"

// m outputs  n inputs
namespace shoal {

/// y = x (P S Q)ᵀ + b over the last dimension, with the weights of S that the layout has and its
/// orders P and Q; others are taken as zero. Differentiable in x, S and b: the gradient of S is a
/// dense [m, n], zero outside the layout.
///
/// Shapes: x [..., n], S [m, n], b [m] or undefined -> [..., m]. All float32 or all float64, on the
/// layout's device, else TORCH_CHECK. Values are taken from S in every call.
torch::Tensor sparse_linear(const torch::Tensor& x, const torch::Tensor& weight_mn,
                            const torch::Tensor& bias_m, const SparseLayoutPtr& layout);

/// The same from values that layout.pack() gave before. No gradients.
torch::Tensor sparse_linear_packed(const torch::Tensor& x, const torch::Tensor& values,
                                   const torch::Tensor& bias_m, const SparseLayout& layout);

}  // namespace shoal
