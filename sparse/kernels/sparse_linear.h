#pragma once

#include <torch/types.h>

#include "sparse/kernels/sparse_layout.h"

// m outputs  n inputs
namespace shoal {

/// Sparse linear layer y = x (P S Q)ᵀ + b over the last dimension, with P, Q and the nonzero
/// weights of S given by the layout. Differentiable in x, S and b; the gradient of S is a dense [m,
/// n], zero outside the mask.
///
/// Shapes: x [..., n], S [m, n], b [m] or undefined -> [..., m]. TORCH_CHECK that all are float32
/// or all float64, on the layout's device. Each call packs the values of S anew.
torch::Tensor sparse_linear(const torch::Tensor& x, const torch::Tensor& weight_mn,
                            const torch::Tensor& bias_m, const SparseLayoutPtr& layout);

/// sparse_linear with values that layout.pack() returned before. No gradients.
torch::Tensor sparse_linear_packed(const torch::Tensor& x, const torch::Tensor& values,
                                   const torch::Tensor& bias_m, const SparseLayout& layout);

}  // namespace shoal
