#pragma once

namespace shoal {

/// Elementwise activation functions that a recipe can choose for MLPs and experts.
enum class Activation {
  kGelu,         ///< x * Phi(x), Phi the normal distribution function; exact, by erf
  kGeluTanh,     ///< GELU's tanh approximation, as in Flax and GPT-2
  kRelu,         ///< max(x, 0)
  kSilu,         ///< x * sigmoid(x)
  kSquaredRelu,  ///< max(x, 0)^2
};

// Constants of the GELUs and their derivatives; the tanh approximation is
// x / 2 * (1 + tanh(kSqrt2OverPi * (x + kTanhCubic * x^3))).
inline constexpr double kInvSqrt2 = 0.70710678118654752440;
inline constexpr double kInvSqrt2Pi = 0.39894228040143267794;
inline constexpr double kSqrt2OverPi = 0.79788456080286535588;
inline constexpr double kTanhCubic = 0.044715;

}  // namespace shoal
