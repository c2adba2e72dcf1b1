#include <cuda_runtime.h>

#include "moe/kernels/logit_functions_cuda.h"
#include "moe/kernels/logit_math.h"
#include "runtime/kernels/row_kernels.cuh"

namespace shoal::logit_functions_cuda {
namespace {

struct Sigmoid {
  __device__ double operator()(double x) const { return logit_math::sigmoid(x); }
};
struct Softplus {
  __device__ double operator()(double x) const { return logit_math::softplus(x); }
};

template <class Function, class Real>
__global__ void each_kernel(Values<Real> values, Function function) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= values.num_rows * values.num_columns) return;
  values.out[i] = static_cast<Real>(function(static_cast<double>(values.in[i])));
}

template <class Real>
__global__ void logsumexp_kernel(Values<Real> values) {
  const int64_t row = device::own_row();
  const int64_t count = row < values.num_rows ? values.num_columns : 0;  // all lanes take part
  const Real* in = values.in + row * count;
  Real highest = count > 0 ? in[0] : Real(0);
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    highest = in[i] > highest ? in[i] : highest;
  }
  highest = device::max_lanes(highest);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    sum += logit_math::exp_below(static_cast<double>(in[i]) - highest);
  }
  sum = device::sum_lanes(sum);
  if (count > 0 && threadIdx.x == 0) values.out[row] = static_cast<Real>(highest + ::log(sum));
}

template <class Function, class Real>
void launch_each(const Values<Real>& values, Function function, CUstream_st* stream) {
  const int64_t count = values.num_rows * values.num_columns;
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + device::kThreads - 1) / device::kThreads);
  each_kernel<<<blocks, device::kThreads, 0, stream>>>(values, function);
}

}  // namespace

template <class Real>
void launch_sigmoid(const Values<Real>& values, CUstream_st* stream) {
  launch_each(values, Sigmoid{}, stream);
}

template <class Real>
void launch_softplus(const Values<Real>& values, CUstream_st* stream) {
  launch_each(values, Softplus{}, stream);
}

template <class Real>
void launch_logsumexp(const Values<Real>& values, CUstream_st* stream) {
  if (values.num_rows == 0) return;
  const device::RowLaunch launch(values.num_rows, values.num_columns);
  logsumexp_kernel<<<launch.grid, launch.block, 0, stream>>>(values);
}

template void launch_sigmoid(const Values<float>&, CUstream_st*);
template void launch_sigmoid(const Values<double>&, CUstream_st*);
template void launch_softplus(const Values<float>&, CUstream_st*);
template void launch_softplus(const Values<double>&, CUstream_st*);
template void launch_logsumexp(const Values<float>&, CUstream_st*);
template void launch_logsumexp(const Values<double>&, CUstream_st*);

}  // namespace shoal::logit_functions_cuda
