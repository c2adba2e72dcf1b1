#pragma once

#include <cmath>

#include "runtime/random/philox.h"

/// The step of LAMB for one element, also for kernels.
namespace shoal {

/// Factors of the update, common to all elements, in their type.
template <class Real>
struct LambFactors {
  Real beta1, one_minus_beta1, beta2, one_minus_beta2;
  Real scale1;  ///< 1 / (1 - beta1^t)
  Real scale2;  ///< 1 / sqrt(1 - beta2^t)
  Real eps, weight_decay;
};

/// Builds them from the list that operators take.
template <class Real, class List>
LambFactors<Real> lamb_factors(const List& list) {
  const auto at = [&](int i) { return static_cast<Real>(list[i]); };
  return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)};
}

template <class Real>
SHOAL_HOST_DEVICE void average(const LambFactors<Real>& f, Real g, Real& m, Real& v) {
  m = f.beta1 * m + f.one_minus_beta1 * g;
  v = f.beta2 * v + f.one_minus_beta2 * (g * g);
}

template <class Real>
SHOAL_HOST_DEVICE Real update_of(const LambFactors<Real>& f, Real m, Real v, Real w) {
  return m * f.scale1 / (std::sqrt(v) * f.scale2 + f.eps) + f.weight_decay * w;
}

/// |w| / |u| from their squares; 1 if either is 0, and at most 1 with `clips`.
SHOAL_HOST_DEVICE double trust_ratio(double weight_square, double update_square, bool clips) {
  if (weight_square <= 0.0 || update_square <= 0.0) return 1.0;
  const double ratio = std::sqrt(weight_square / update_square);
  return clips && ratio > 1.0 ? 1.0 : ratio;
}

}  // namespace shoal
