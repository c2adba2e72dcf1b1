#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>

#include "runtime/kernels/activation.h"
#include "runtime/recipe/config.h"

namespace shoal {

template <>
struct EnumNames<Activation> {
  static constexpr std::array names{
      std::pair{Activation::kGelu, "gelu"}, std::pair{Activation::kGeluTanh, "gelu_tanh"},
      std::pair{Activation::kRelu, "relu"}, std::pair{Activation::kSilu, "silu"},
      std::pair{Activation::kSquaredRelu, "squared_relu"}};
};

/// act(x + bias), differentiable in both, with an element of `bias` for each element of x's last
/// dimension: one pass forward (which also keeps the derivative), one pass backward (which also
/// sums the bias gradient, in an order that depends on the shape alone).
///
/// x is contiguous, float32, float64 or bfloat16, of any shape; bias is of x's dtype, undefined for
/// none. float32 results are within a few float32 roundings of the exact function; bfloat16 is
/// computed in float32 and rounded once. Refuses second derivatives.
torch::Tensor bias_activation(const torch::Tensor& x, const torch::Tensor& bias,
                              Activation activation);

}  // namespace shoal
