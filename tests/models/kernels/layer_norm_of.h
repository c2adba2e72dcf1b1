#pragma once

#include "models/kernels/layer_norm.h"

namespace shoal::testing {

/// A layer norm with these parameters; `bias` may be undefined.
inline LayerNorm layer_norm_of(const torch::Tensor& weight, const torch::Tensor& bias) {
  LayerNorm norm(weight.size(0), weight.options().requires_grad(false),
                 NormOptions{.bias = bias.defined()});
  norm->weight = weight;
  norm->bias = bias;
  return norm;
}
inline torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight,
                                const torch::Tensor& bias) {
  return layer_norm_of(weight, bias)->forward(x);
}
inline torch::Tensor layer_norm_transposed(const torch::Tensor& x_BSC, const torch::Tensor& weight,
                                           const torch::Tensor& bias) {
  return layer_norm_of(weight, bias)->branch_transposed(x_BSC).normed;
}

}  // namespace shoal::testing
