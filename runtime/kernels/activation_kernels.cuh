#pragma once

#include <cuda_runtime.h>

#include "runtime/kernels/activation.h"

/// Activation functions with their derivatives, for CUDA kernels.
namespace shoal::device {

template <class Real>
struct Activated {
  Real value, derivative;
};

template <Activation kActivation, class Real>
__device__ inline Activated<Real> activate(Real x) {
  if constexpr (kActivation == Activation::kGelu) {
    const Real cdf = Real(0.5) * erfc(-x * Real(kInvSqrt2));
    return {x * cdf, cdf + x * Real(kInvSqrt2Pi) * exp(Real(-0.5) * x * x)};
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    const Real scale = Real(2 * kSqrt2OverPi);
    const Real cubic = Real(kTanhCubic) * x * x;
    const Real gate = Real(1) / (Real(1) + exp(-scale * x * (Real(1) + cubic)));
    const Real slope = scale * (Real(1) + Real(3) * cubic);
    return {x * gate, gate + x * gate * (Real(1) - gate) * slope};
  } else if constexpr (kActivation == Activation::kRelu) {
    return {x < Real(0) ? Real(0) : x, x > Real(0) ? Real(1) : Real(0)};
  } else if constexpr (kActivation == Activation::kSquaredRelu) {
    const Real positive = x < Real(0) ? Real(0) : x;
    return {positive * positive, Real(2) * positive};
  } else {
    const Real gate = Real(1) / (Real(1) + exp(-x));
    return {x * gate, gate * (Real(1) + x * (Real(1) - gate))};
  }
}

/// A type that holds an activation as a constant.
template <Activation kValue>
struct ActivationConstant {
  static constexpr Activation kActivation = kValue;
};
/// On the host: calls `body` with the activation's ActivationConstant, which selects a kernel.
template <class Body>
void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kGelu:
      return body(ActivationConstant<Activation::kGelu>{});
    case Activation::kGeluTanh:
      return body(ActivationConstant<Activation::kGeluTanh>{});
    case Activation::kRelu:
      return body(ActivationConstant<Activation::kRelu>{});
    case Activation::kSilu:
      return body(ActivationConstant<Activation::kSilu>{});
    case Activation::kSquaredRelu:
      return body(ActivationConstant<Activation::kSquaredRelu>{});
  }
}

}  // namespace shoal::device
