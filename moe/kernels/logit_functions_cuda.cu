// Must not fuse: routers choose by these scores, and a tie must stay a tie.
#include <cuda_runtime.h>

#include "moe/kernels/logit_functions_cuda.h"
#include "moe/kernels/logit_math.h"
#include "runtime/kernels/row_kernels.cuh"

namespace shoal::logit_functions_cuda {
namespace {

using device::kThreads;
using device::own_row;

struct Sigmoid {
  __device__ double operator()(double x) const { return logit_math::sigmoid(x); }
};
struct Softplus {
  __device__ double operator()(double x) const { return logit_math::softplus(x); }
};

template <class Map, class Real>
__global__ void each_kernel(Rows<Real> rows, Map map) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= rows.num_rows * rows.num_columns) return;
  rows.out[i] = static_cast<Real>(map(static_cast<double>(rows.in_RC[i])));
}

/// The row that this lane works on; without columns after the last row, since all lanes take part.
template <class Real>
struct OwnRow {
  int64_t index, count;
  const Real* in;

  __device__ explicit OwnRow(const Rows<Real>& rows)
      : index(own_row()),
        count(index < rows.num_rows ? rows.num_columns : 0),
        in(rows.in_RC + index * count) {}
  __device__ Real highest() const {
    Real most = count > 0 ? in[0] : Real(0);
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) most = in[i] > most ? in[i] : most;
    return device::max_lanes(most);
  }
};

template <class Real>
__global__ void logsumexp_kernel(Rows<Real> rows) {
  const OwnRow<Real> row(rows);
  const Real highest = row.highest();
  double sum = 0;
  for (int64_t i = threadIdx.x; i < row.count; i += blockDim.x) {
    sum += logit_math::exp_below(static_cast<double>(row.in[i]) - highest);
  }
  sum = device::sum_lanes(sum);
  if (row.count > 0 && threadIdx.x == 0) {
    rows.out[row.index] = static_cast<Real>(highest + ::log(sum));
  }
}

template <class Real>
__global__ void softmax_kernel(Rows<Real> rows) {
  const OwnRow<Real> row(rows);
  Real* out = rows.out + row.index * row.count;
  const Real highest = row.highest();
  Real sum = 0;
  for (int64_t i = threadIdx.x; i < row.count; i += blockDim.x) {
    const Real value = device::exp_below(row.in[i], highest);
    out[i] = value;
    sum += value;
  }
  const Real scale = Real(1) / device::sum_lanes(sum);
  for (int64_t i = threadIdx.x; i < row.count; i += blockDim.x) out[i] *= scale;
}

template <class Real>
__global__ void softmax_backward_kernel(Rows<Real> rows) {
  const OwnRow<Real> row(rows);
  const Real* gate = rows.gate_RC + row.index * row.count;
  Real* out = rows.out + row.index * row.count;
  Real dot = 0;
  for (int64_t i = threadIdx.x; i < row.count; i += blockDim.x) dot += row.in[i] * gate[i];
  dot = device::sum_lanes(dot);
  for (int64_t i = threadIdx.x; i < row.count; i += blockDim.x) {
    out[i] = gate[i] * (row.in[i] - dot);
  }
}

}  // namespace

template <class Real>
void launch(Function function, const Rows<Real>& rows, CUstream_st* stream) {
  const int64_t count = rows.num_rows * rows.num_columns;
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  const device::RowLaunch by_row(rows.num_rows, rows.num_columns);
  switch (function) {
    case Function::kSigmoid:
      each_kernel<<<blocks, kThreads, 0, stream>>>(rows, Sigmoid{});
      break;
    case Function::kSoftplus:
      each_kernel<<<blocks, kThreads, 0, stream>>>(rows, Softplus{});
      break;
    case Function::kLogsumexp:
      logsumexp_kernel<<<by_row.grid, by_row.block, 0, stream>>>(rows);
      break;
    case Function::kSoftmax:
      softmax_kernel<<<by_row.grid, by_row.block, 0, stream>>>(rows);
      break;
    case Function::kSoftmaxBackward:
      softmax_backward_kernel<<<by_row.grid, by_row.block, 0, stream>>>(rows);
      break;
  }
}

template void launch(Function, const Rows<float>&, CUstream_st*);
template void launch(Function, const Rows<double>&, CUstream_st*);

}  // namespace shoal::logit_functions_cuda
