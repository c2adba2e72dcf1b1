#pragma once

#include <cmath>

#include "runtime/random/philox.h"

/// The numbers of a step of LAMB, also for kernels.
namespace shoal {

/// What the update of every element needs, in its type.
template <class Real>
struct LambFactors {
  Real beta1, one_minus_beta1, beta2, one_minus_beta2;
  Real scale1;  ///< 1 / (1 - beta1^t)
  Real scale2;  ///< 1 / sqrt(1 - beta2^t)
  Real eps, weight_decay;
};

/// correction1 = 1 - beta1^t, correction2 = 1 - beta2^t.
struct LambNumbers {
  double beta1, beta2, correction1, correction2, eps, weight_decay;

  template <class Real>
  LambFactors<Real> factors() const {
    return {static_cast<Real>(beta1),
            static_cast<Real>(1.0 - beta1),
            static_cast<Real>(beta2),
            static_cast<Real>(1.0 - beta2),
            static_cast<Real>(1.0 / correction1),
            static_cast<Real>(1.0 / std::sqrt(correction2)),
            static_cast<Real>(eps),
            static_cast<Real>(weight_decay)};
  }
};

/// |w| / |u| of their squares, 1 where either is 0, and at most 1 if it is clipped.
SHOAL_HOST_DEVICE double trust_ratio(double weight_square, double update_square, bool clips) {
  if (weight_square <= 0.0 || update_square <= 0.0) return 1.0;
  const double ratio = std::sqrt(weight_square / update_square);
  return clips && ratio > 1.0 ? 1.0 : ratio;
}

}  // namespace shoal
