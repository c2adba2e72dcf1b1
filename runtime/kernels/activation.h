#pragma once

namespace shoal {

enum class Activation {
  kGelu,      ///< x * Phi(x), exact (erf)
  kGeluTanh,  ///< the tanh approximation of flax and GPT-2
  kRelu,
  kSilu,         ///< x * sigmoid(x)
  kSquaredRelu,  ///< max(x, 0)^2
};

// Constants of the GELUs and their derivatives.
inline constexpr double kInvSqrt2 = 0.70710678118654752440;
inline constexpr double kInvSqrt2Pi = 0.39894228040143267794;
inline constexpr double kSqrt2OverPi = 0.79788456080286535588;
inline constexpr double kTanhCubic = 0.044715;

}  // namespace shoal
