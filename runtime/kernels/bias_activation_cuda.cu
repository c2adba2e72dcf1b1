#include <cuda_runtime.h>

#include "runtime/kernels/activation_kernels.cuh"
#include "runtime/kernels/bias_activation_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

namespace shoal {
namespace {

using device::Pack;
using device::Sum;

template <Activation kActivation, int kPack, class Real>
__global__ void activation_kernel(ActivationMatrix<Real> matrix, int64_t packs) {
  const int64_t row = device::own_row();
  if (row >= matrix.rows) return;
  for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
    const int64_t at = row * packs + c;
    const auto x = device::load_wide<kPack>(matrix.x, at);
    const auto bias = device::load_wide<kPack>(matrix.bias, c);
    Pack<Sum<Real>, kPack> y, derivative;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      Sum<Real> value = x.value[i];
      if (matrix.bias != nullptr) value += bias.value[i];
      const device::Activated<Sum<Real>> result = device::activate<kActivation>(value);
      y.value[i] = result.value;
      derivative.value[i] = result.derivative;
    }
    device::store_narrow(matrix.y, at, y);
    if (matrix.derivative != nullptr) device::store_narrow(matrix.derivative, at, derivative);
  }
}

}  // namespace

template <class Real>
void launch_bias_activation(Activation activation, const ActivationMatrix<Real>& matrix,
                            CUstream_st* stream) {
  const auto launch = [&](const device::RowLaunch& rows, int64_t packs, auto pack) {
    device::with_activation(activation, [&](auto act) {
      activation_kernel<decltype(act)::kActivation, decltype(pack)::value>
          <<<rows.grid, rows.block, 0, stream>>>(matrix, packs);
    });
  };
  device::with_packs<Real>(matrix.rows, matrix.columns, launch, matrix.x, matrix.y,
                           matrix.derivative, matrix.bias);
}

template void launch_bias_activation(Activation, const ActivationMatrix<float>&, CUstream_st*);
template void launch_bias_activation(Activation, const ActivationMatrix<double>&, CUstream_st*);
template void launch_bias_activation(Activation, const ActivationMatrix<Bfloat16>&, CUstream_st*);

}  // namespace shoal
