#include <cuda_runtime.h>

#include "runtime/bias_activation_cuda.h"

namespace shoal {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxGrid = 1 << 16;

constexpr double kInvSqrt2 = 0.70710678118654752440;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;
constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kTanhCubic = 0.044715;

template <class Real>
struct Activated {
  Real value, derivative;
};

template <Activation kActivation, class Real>
__device__ Activated<Real> activate(Real x) {
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

template <Activation kActivation, class Real>
__global__ void activation_kernel(ActivationElements<Real> elements) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements.numel; i += stride) {
    Real x = elements.x[i];
    if (elements.bias != nullptr) x += elements.bias[i / elements.inner % elements.num_bias];
    const Activated<Real> result = activate<kActivation>(x);
    elements.y[i] = result.value;
    if (elements.derivative != nullptr) elements.derivative[i] = result.derivative;
  }
}

template <Activation kActivation, class Real>
void launch(const ActivationElements<Real>& elements, CUstream_st* stream) {
  const int64_t blocks = (elements.numel + kThreads - 1) / kThreads;
  const int grid = static_cast<int>(blocks < kMaxGrid ? blocks : kMaxGrid);
  activation_kernel<kActivation><<<grid, kThreads, 0, stream>>>(elements);
}

}  // namespace

template <class Real>
void launch_bias_activation(Activation activation, const ActivationElements<Real>& elements,
                            CUstream_st* stream) {
  if (elements.numel == 0) return;
  switch (activation) {
    case Activation::kGelu:
      return launch<Activation::kGelu>(elements, stream);
    case Activation::kGeluTanh:
      return launch<Activation::kGeluTanh>(elements, stream);
    case Activation::kRelu:
      return launch<Activation::kRelu>(elements, stream);
    case Activation::kSilu:
      return launch<Activation::kSilu>(elements, stream);
    case Activation::kSquaredRelu:
      return launch<Activation::kSquaredRelu>(elements, stream);
  }
}

template void launch_bias_activation(Activation, const ActivationElements<float>&, CUstream_st*);
template void launch_bias_activation(Activation, const ActivationElements<double>&, CUstream_st*);

}  // namespace shoal
