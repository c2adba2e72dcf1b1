#pragma once

namespace shoal {

enum class Activation {
  kGelu,      ///< x * Phi(x), exact (erf)
  kGeluTanh,  ///< the tanh approximation of flax and GPT-2
  kRelu,
  kSilu,         ///< x * sigmoid(x)
  kSquaredRelu,  ///< max(x, 0)^2
};

}  // namespace shoal
