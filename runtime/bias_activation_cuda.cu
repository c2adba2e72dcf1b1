#include <cuda_runtime.h>

#include "runtime/activation_kernels.cuh"
#include "runtime/bias_activation_cuda.h"

namespace shoal {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxGrid = 1 << 16;

template <Activation kActivation, class Real>
__global__ void activation_kernel(ActivationElements<Real> elements) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements.numel; i += stride) {
    Real x = elements.x[i];
    if (elements.bias != nullptr) x += elements.bias[i / elements.inner % elements.num_bias];
    const device::Activated<Real> result = device::activate<kActivation>(x);
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
