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

/// act(x + bias), differentiable in both, with `bias` along dimension `dim` of x: one pass forward
/// (which also keeps the derivative), one pass backward (which also sums the bias gradient).
///
/// x is contiguous, float32, float64 or bfloat16, of any shape; x.size(dim) == bias.size(0); bias
/// is of x's dtype. An undefined bias is none. float32 results are within a few float32 roundings
/// of the exact function; bfloat16 is computed in float32 and rounded once.
torch::Tensor bias_activation(const torch::Tensor& x, const torch::Tensor& bias,
                              Activation activation, int64_t dim = -1);

/// The two passes on their own, for functions that bring their own gradient.
///
/// What is added before the activation, along which dimension.
struct BiasedActivation {
  torch::Tensor bias;  ///< may be undefined
  Activation activation = Activation::kGelu;
  int64_t dim = -1;
};

/// Writes the activation to `y` and, unless `derivative` is undefined, its derivative at x + bias
/// to `derivative`, which may be x. Both are contiguous and of x's shape.
void bias_activation_out(torch::Tensor y, torch::Tensor derivative, const torch::Tensor& x,
                         const BiasedActivation& biased);
/// grad *= derivative, in place; adds the sums of the products over all dimensions but `dim` to
/// `bias_grad` if it is defined. In a fixed order for a given shape and number of threads.
void bias_activation_backward(torch::Tensor grad, const torch::Tensor& derivative,
                              torch::Tensor bias_grad, int64_t dim);

}  // namespace shoal
