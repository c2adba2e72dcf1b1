#pragma once

#include <cmath>

#include "runtime/device/cpu_clones.h"
#include "runtime/kernels/activation.h"
#include "runtime/kernels/vector_math.h"

/// Activation functions, inlined into vectorised loops on CPUs: `Gelu::at(x)` returns the value and
/// the derivative. Include this file after a `#pragma GCC optimize`, which then applies to it.
namespace shoal::activation_functions {

using vector_math::by_sign;
using vector_math::exp_of;

template <class Real>
struct Activated {
  Real value, derivative;
};

struct Gelu {
  static SHOAL_INLINE Activated<double> at(double x) {
    const double cdf = 0.5 * std::erfc(-x * kInvSqrt2);
    return {x * cdf, cdf + x * kInvSqrt2Pi * std::exp(-0.5 * x * x)};
  }
  // Phi(-z) = exp(-z^2 / 2) t Q(t), t = 1 / (1 + 0.35 z), z >= 0: the form of Abramowitz and Stegun
  // 26.2.17 with Q of degree 8, interpolated at Chebyshev nodes; relative error 4e-8 for z < 14.5.
  static SHOAL_INLINE Activated<float> at(float x) {
    const float z = __builtin_fabsf(x);
    const float t = 1.0f / (1.0f + 0.35f * z);
    float q = -0.0297322758107f;
    q = q * t + 0.146783986077f;
    q = q * t - 0.261410543238f;
    q = q * t + 0.16551016483f;
    q = q * t - 0.0273219105835f;
    q = q * t + 0.107212499401f;
    q = q * t + 0.119425092658f;
    q = q * t + 0.139914333902f;
    q = q * t + 0.139618635013f;
    const float density = exp_of(-0.5f * x * x);
    const float tail = density * (t * q);
    const float cdf = by_sign(x, tail, 1.0f - tail);
    return {x * cdf, cdf + x * density * static_cast<float>(kInvSqrt2Pi)};
  }
};

struct GeluTanh {
  // 0.5 (1 + tanh(u)) = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
  template <class Real>
  static SHOAL_INLINE Activated<Real> at(Real x) {
    const Real scale = static_cast<Real>(2 * kSqrt2OverPi);
    const Real cubic = static_cast<Real>(kTanhCubic);
    const Real x2 = x * x;
    const Real gate = Real(1) / (Real(1) + exp_of(-scale * x * (Real(1) + cubic * x2)));
    const Real slope = scale * (Real(1) + Real(3) * cubic * x2);
    return {x * gate, gate + x * gate * (Real(1) - gate) * slope};
  }
};

struct Relu {
  template <class Real>
  static SHOAL_INLINE Activated<Real> at(Real x) {
    return {x < Real(0) ? Real(0) : x, x > Real(0) ? Real(1) : Real(0)};
  }
};

struct Silu {
  template <class Real>
  static SHOAL_INLINE Activated<Real> at(Real x) {
    const Real gate = Real(1) / (Real(1) + exp_of(-x));
    return {x * gate, gate * (Real(1) + x * (Real(1) - gate))};
  }
};

struct SquaredRelu {
  template <class Real>
  static SHOAL_INLINE Activated<Real> at(Real x) {
    const Real positive = x < Real(0) ? Real(0) : x;
    return {positive * positive, Real(2) * positive};
  }
};

/// Calls `body` with an object of the activation's struct, such as Gelu{}: one branch for a whole
/// loop instead of one per element.
template <class Body>
SHOAL_INLINE void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kGelu:
      return body(Gelu{});
    case Activation::kGeluTanh:
      return body(GeluTanh{});
    case Activation::kRelu:
      return body(Relu{});
    case Activation::kSilu:
      return body(Silu{});
    case Activation::kSquaredRelu:
      return body(SquaredRelu{});
  }
}

}  // namespace shoal::activation_functions
