#pragma once

#include <torch/types.h>

#include "sparse/kernels/sparse_layout.h"

// m outputs  n inputs
namespace shoal {

/// y = x (P S Q)ᵀ + b over the last dimension, with the layout's orders P and Q; weights of S
/// outside the layout are taken as zero. Differentiable in x, S and b: the gradient of S is a dense
/// [m, n], zero outside the layout.
///
/// Shapes: x [..., n], S [m, n], b [m] or undefined -> [..., m]. All float32 or all float64, on the
/// layout's device, else TORCH_CHECK. Every call packs the values of S anew.
torch::Tensor sparse_linear(const torch::Tensor& x, const torch::Tensor& weight_mn,
                            const torch::Tensor& bias_m, const SparseLayoutPtr& layout);

/// sparse_linear with values that layout.pack() returned before. No gradients.
torch::Tensor sparse_linear_packed(const torch::Tensor& x, const torch::Tensor& values,
                                   const torch::Tensor& bias_m, const SparseLayout& layout);

}  // namespace shoal
