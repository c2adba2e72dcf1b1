#pragma once

#include <torch/types.h>

#include <array>
#include <utility>

#include "runtime/kernels/activation.h"
#include "runtime/options/config.h"

namespace shoal {

template <>
struct EnumNames<Activation> {
  static constexpr std::array names{
      std::pair{Activation::kGelu, "gelu"}, std::pair{Activation::kGeluTanh, "gelu_tanh"},
      std::pair{Activation::kRelu, "relu"}, std::pair{Activation::kSilu, "silu"},
      std::pair{Activation::kSquaredRelu, "squared_relu"}};
};

/// act(x + bias), differentiable in both, with `bias` along the last dimension of x: one pass
/// forward, which also saves the derivative, and one backward, which also sums the bias gradient,
/// in a fixed order for a given shape.
///
/// x is contiguous, float32, float64 or bfloat16; bias has x's dtype or is undefined. float32
/// results are within a few float32 roundings of the exact function; bfloat16 is computed in
/// float32 and rounded once.
torch::Tensor bias_activation(const torch::Tensor& x, const torch::Tensor& bias,
                              Activation activation);

}  // namespace shoal
