#pragma once

#include <torch/types.h>

#include <array>
#include <utility>

#include "runtime/kernels/activation.h"
#include "runtime/options/config.h"

namespace shoal {

/// Words for the activations in recipes.
template <>
struct EnumNames<Activation> {
  static constexpr std::array names{
      std::pair{Activation::kGelu, "gelu"}, std::pair{Activation::kGeluTanh, "gelu_tanh"},
      std::pair{Activation::kRelu, "relu"}, std::pair{Activation::kSilu, "silu"},
      std::pair{Activation::kSquaredRelu, "squared_relu"}};
};

/// Returns act(x + bias), as a fused kernel for the hidden layer of MLPs; differentiable in x and
/// bias. The forward pass saves the derivative if a gradient is needed. The gradient of the bias is
/// summed in a fixed order for a given shape.
///
/// x [..., n] is contiguous, float32, float64 or bfloat16. bias [n] has x's dtype; an undefined one
/// counts as 0. Throws TORCH_CHECK on other shapes or dtypes. float32 results are within a few
/// float32 roundings of the exact function; bfloat16 is computed in float32 and rounded once.
torch::Tensor bias_activation(const torch::Tensor& x, const torch::Tensor& bias,
                              Activation activation);

}  // namespace shoal
