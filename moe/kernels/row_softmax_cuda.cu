#include <cuda_runtime.h>

#include "moe/kernels/row_softmax.cuh"
#include "moe/kernels/row_softmax_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

// T tokens  U units
namespace shoal::row_softmax_cuda {
namespace {

using device::own_row;
using device::RowLaunch;

template <class Real>
__global__ void softmax_kernel(Rows<Real> rows) {
  const int64_t row = own_row();
  const int64_t num_units = row < rows.num_tokens ? rows.num_units : 0;
  const Real* in = rows.in_TU + row * num_units;
  Real* out = rows.out_TU + row * num_units;
  Real highest = num_units > 0 ? in[0] : Real(0);
  for (int64_t u = threadIdx.x; u < num_units; u += blockDim.x) {
    highest = in[u] > highest ? in[u] : highest;
  }
  highest = device::max_lanes(highest);
  Real sum = 0;
  for (int64_t u = threadIdx.x; u < num_units; u += blockDim.x) {
    const Real value = device::exp_below(in[u], highest);
    out[u] = value;
    sum += value;
  }
  const Real scale = Real(1) / device::sum_lanes(sum);
  for (int64_t u = threadIdx.x; u < num_units; u += blockDim.x) out[u] *= scale;
}

template <class Real>
__global__ void backward_kernel(Rows<Real> rows) {
  const int64_t row = own_row();
  const int64_t num_units = row < rows.num_tokens ? rows.num_units : 0;
  const Real* grad = rows.in_TU + row * num_units;
  const Real* gate = rows.gate_TU + row * num_units;
  Real* out = rows.out_TU + row * num_units;
  Real dot = 0;
  for (int64_t u = threadIdx.x; u < num_units; u += blockDim.x) dot += grad[u] * gate[u];
  dot = device::sum_lanes(dot);
  for (int64_t u = threadIdx.x; u < num_units; u += blockDim.x) out[u] = gate[u] * (grad[u] - dot);
}

}  // namespace

template <class Real>
void launch_softmax(const Rows<Real>& rows, CUstream_st* stream) {
  if (rows.num_tokens == 0) return;
  const RowLaunch launch(rows.num_tokens, rows.num_units);
  softmax_kernel<<<launch.grid, launch.block, 0, stream>>>(rows);
}

template <class Real>
void launch_backward(const Rows<Real>& rows, CUstream_st* stream) {
  if (rows.num_tokens == 0) return;
  const RowLaunch launch(rows.num_tokens, rows.num_units);
  backward_kernel<<<launch.grid, launch.block, 0, stream>>>(rows);
}

template void launch_softmax(const Rows<float>&, CUstream_st*);
template void launch_softmax(const Rows<double>&, CUstream_st*);
template void launch_backward(const Rows<float>&, CUstream_st*);
template void launch_backward(const Rows<double>&, CUstream_st*);

}  // namespace shoal::row_softmax_cuda
