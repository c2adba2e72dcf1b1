#pragma once

#include <cmath>

#include "runtime/random/philox.h"

/// The formulas of the LAMB optimizer for one weight w, for CPU and CUDA kernels.
namespace shoal {

/// Constants of one update, equal for all weights; t is the number of the update, from 1.
template <class Real>
struct LambFactors {
  Real beta1, one_minus_beta1, beta2, one_minus_beta2;
  Real scale1;  ///< 1 / (1 - beta1^t)
  Real scale2;  ///< 1 / sqrt(1 - beta2^t)
  Real eps, weight_decay;
};

/// Returns the constants in `list`: eight numbers in the order above, as torch operators get them.
template <class Real, class List>
LambFactors<Real> lamb_factors(const List& list) {
  const auto at = [&](int i) { return static_cast<Real>(list[i]); };
  return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)};
}

/// Updates the averages with gradient g: m of gradients, v of their squares.
template <class Real>
SHOAL_HOST_DEVICE void average(const LambFactors<Real>& f, Real g, Real& m, Real& v) {
  m = f.beta1 * m + f.one_minus_beta1 * g;
  v = f.beta2 * v + f.one_minus_beta2 * (g * g);
}

/// The update u of w with decay, before learning rate and trust ratio.
template <class Real>
SHOAL_HOST_DEVICE Real update_of(const LambFactors<Real>& f, Real m, Real v, Real w) {
  return m * f.scale1 / (std::sqrt(v) * f.scale2 + f.eps) + f.weight_decay * w;
}

/// Trust ratio |w| / |u| of a matrix, from squared norms. 1 if a norm is 0; at most 1 if `clips`.
SHOAL_HOST_DEVICE double trust_ratio(double weight_square, double update_square, bool clips) {
  if (weight_square <= 0.0 || update_square <= 0.0) return 1.0;
  const double ratio = std::sqrt(weight_square / update_square);
  return clips && ratio > 1.0 ? 1.0 : ratio;
}

}  // namespace shoal
