#pragma once

#include "runtime/random/philox.h"

/// Functions of one logit of a MoE router. They use only +, ×, / and fma on doubles, in one order,
/// so that a logit gives the same bits in a vector loop, in its remainder, and on CPU and GPU.
namespace shoal::logit_math {

inline constexpr double kLinearSoftplus = 20.0;  ///< softplus(x) is x above this, as in LibTorch

/// exp(max(x, -708)) for x <= 0, within 2 ulp; NaN for NaN.
SHOAL_HOST_DEVICE double exp_below(double x) {
  constexpr double kShift = 0x1.8p52;  // adding it rounds to an integer
  x = x < -708.0 ? -708.0 : x;
  const double shifted = philox::fma(x, 0x1.71547652b82fep+0, kShift);
  const double n = shifted - kShift;
  const double high = philox::fma(n, -0x1.62e42fefa39efp-1, x);
  const double r = philox::fma(n, -0x1.abc9e3b39803fp-56, high);
  // The Taylor series to the 13th power; the 14th is below 2^-57 at |r| <= log(2) / 2.
  const double p = philox::polynomial(r, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800,
                                      1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                                      1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  const uint64_t exponent =
      philox::bits_as<uint64_t>(shifted) - philox::bits_as<uint64_t>(kShift) + 1023;
  return p * philox::bits_as<double>(exponent << 52);
}

SHOAL_HOST_DEVICE double sigmoid(double x) {
  const double t = exp_below(x < 0.0 ? x : -x);
  return (x < 0.0 ? t : 1.0) / (1.0 + t);
}

SHOAL_HOST_DEVICE double softplus(double x) {
  const double t = exp_below(x < 0.0 ? x : -x);
  const double sum = (x < 0.0 ? 0.0 : x) + philox::log_of_complement(-t);
  return x > kLinearSoftplus ? x : sum;
}

}  // namespace shoal::logit_math
