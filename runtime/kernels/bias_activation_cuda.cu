#include <cuda_runtime.h>

#include <type_traits>

#include "runtime/kernels/activation_kernels.cuh"
#include "runtime/kernels/bias_activation_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

namespace shoal {
namespace {

using device::kPackSize;
using device::Pack;
using device::Sum;

template <Activation kActivation, int kPack, class Real>
__global__ void activation_kernel(ActivationMatrix<Real> matrix) {
  using Values = Pack<Real, kPack>;
  const int64_t row = device::own_row();
  if (row >= matrix.rows) return;
  const int64_t packs = matrix.columns / kPack;
  for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
    const int64_t at = row * packs + c;
    const Values x = reinterpret_cast<const Values*>(matrix.x)[at];
    Values bias = {}, y, derivative;
    if (matrix.bias != nullptr) bias = reinterpret_cast<const Values*>(matrix.bias)[c];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      Sum<Real> value = device::widen(x.value[i]);
      if (matrix.bias != nullptr) value += device::widen(bias.value[i]);
      const device::Activated<Sum<Real>> result = device::activate<kActivation>(value);
      y.value[i] = device::narrow<Real>(result.value);
      derivative.value[i] = device::narrow<Real>(result.derivative);
    }
    reinterpret_cast<Values*>(matrix.y)[at] = y;
    if (matrix.derivative != nullptr) {
      reinterpret_cast<Values*>(matrix.derivative)[at] = derivative;
    }
  }
}

}  // namespace

template <class Real>
void launch_bias_activation(Activation activation, const ActivationMatrix<Real>& matrix,
                            CUstream_st* stream) {
  if (matrix.rows == 0 || matrix.columns == 0) return;
  const auto launch = [&](auto pack) {
    constexpr int kPack = decltype(pack)::value;
    const device::RowLaunch rows(matrix.rows, matrix.columns / kPack);
    device::with_activation(activation, [&](auto act) {
      activation_kernel<decltype(act)::kActivation, kPack>
          <<<rows.grid, rows.block, 0, stream>>>(matrix);
    });
  };
  const int64_t bytes = matrix.columns * static_cast<int64_t>(sizeof(Real));
  if (device::is_aligned(bytes, matrix.x, matrix.y, matrix.derivative, matrix.bias)) {
    launch(std::integral_constant<int, kPackSize<Real>>{});
  } else {
    launch(std::integral_constant<int, 1>{});
  }
}

template void launch_bias_activation(Activation, const ActivationMatrix<float>&, CUstream_st*);
template void launch_bias_activation(Activation, const ActivationMatrix<double>&, CUstream_st*);
template void launch_bias_activation(Activation, const ActivationMatrix<Bfloat16>&, CUstream_st*);

}  // namespace shoal
