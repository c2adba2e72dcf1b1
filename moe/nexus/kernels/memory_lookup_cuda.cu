// Must not fuse: weights and weighted sums round as the CPU's. The scale's gradient is wider.
#include <cuda_runtime.h>

#include "moe/nexus/kernels/memory_lookup_cuda.h"
#include "runtime/kernels/block_sum.cuh"
#include "runtime/kernels/row_kernels.cuh"

// R rows  D width  K keys of a unit  k keys chosen per row  u units  H = R k hits
namespace shoal::memory_lookup_cuda {
namespace {

using device::kThreads;
using device::Pack;
using device::RowLaunch;

template <class Real>
__device__ int unit_of(const Tables<Real>& tables, int64_t row) {
  int unit = 0;
  while (unit + 1 < tables.num_units && tables.end_u[unit] <= row) ++unit;
  return unit;
}

template <class Real>
__device__ Real scale_of(const Tables<Real>& tables, int unit) {
  return tables.scale_u == nullptr ? Real(1) : tables.scale_u[unit];
}

/// This lane's packs of out = the sum of weight_of(i) * the row_of(i)-th row of a table, i < count.
template <int kPack, class Real, class RowOf, class WeightOf>
__device__ void sum_bag(const Real* table, int64_t width, int64_t count, const RowOf& row_of,
                        const WeightOf& weight_of, Real* out) {
  using Values = Pack<Real, kPack>;
  const int64_t packs = width / kPack;
  for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
    Values sum = {};
    for (int64_t i = 0; i < count; ++i) {
      const Values values = reinterpret_cast<const Values*>(table + row_of(i) * width)[c];
      const Real weight = weight_of(i);
#pragma unroll
      for (int e = 0; e < kPack; ++e) sum.value[e] += weight * values.value[e];
    }
    reinterpret_cast<Values*>(out)[c] = sum;
  }
}

template <int kPack, class Real>
__global__ void sums_kernel(Tables<Real> tables, Sums<Real> job) {
  const int64_t row = device::own_row();
  if (row >= tables.num_rows) return;  // no lane of this kernel needs the values of another
  const int unit = unit_of(tables, row);
  const int64_t k = tables.k;
  const Real* score = job.score_Rk + row * k;
  const Real scale = scale_of(tables, unit);
  const bool is_full = score[k - 1] > Real(-INFINITY);
  Real sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += exp(scale * (score[j] - score[0]));
  const auto weight_of = [&](int64_t j) {
    return is_full ? exp(scale * (score[j] - score[0])) / sum : Real(NAN);
  };
  for (int64_t j = threadIdx.x; j < k; j += blockDim.x) job.weight_Rk[row * k + j] = weight_of(j);
  const int64_t* chosen = job.chosen_Rk + row * k;
  sum_bag<kPack>(
      tables.values + unit * tables.num_keys * tables.width, tables.width, k,
      [&](int64_t j) { return chosen[j]; }, weight_of, job.y + row * tables.width);
}

/// <a, b> over a row's lanes; all lanes of the warp take part.
template <int kPack, class Real>
__device__ Real dot(const Real* a, const Real* b, int64_t width) {
  using Values = Pack<Real, kPack>;
  Real sum = 0;
  for (int64_t c = threadIdx.x; c < width / kPack; c += blockDim.x) {
    const Values left = reinterpret_cast<const Values*>(a)[c];
    const Values right = reinterpret_cast<const Values*>(b)[c];
#pragma unroll
    for (int e = 0; e < kPack; ++e) sum += left.value[e] * right.value[e];
  }
  return device::sum_lanes(sum);
}

template <int kPack, class Real>
__global__ void rows_backward_kernel(Tables<Real> tables, RowsBackward<Real> job) {
  const int64_t own = device::own_row();
  const bool is_there = own < tables.num_rows;
  const int64_t row = is_there ? own : 0;  // all lanes take part in the sums
  const int unit = unit_of(tables, row);
  const int64_t k = tables.k, width = tables.width;
  const int64_t table = unit * tables.num_keys * width;
  const int64_t* chosen = job.chosen_Rk + row * k;
  const Real* weight = job.weight_Rk + row * k;
  Real* score_grad = job.score_grad_Rk + row * k;
  Real mean = 0;
  for (int64_t j = 0; j < k; ++j) {
    const Real weight_grad =
        dot<kPack>(tables.values + table + chosen[j] * width, job.y_grad + row * width, width);
    mean += weight[j] * weight_grad;
    if (is_there && threadIdx.x == 0) score_grad[j] = weight_grad;
  }
  __syncwarp();
  for (int64_t j = threadIdx.x; is_there && j < k; j += blockDim.x) {
    score_grad[j] = weight[j] * (score_grad[j] - mean);
    job.key_H[row * k + j] = unit * tables.num_keys + chosen[j];
  }
  __syncwarp();
  if (!is_there || job.query_grad == nullptr) return;
  const Real scale = scale_of(tables, unit);
  sum_bag<kPack>(
      tables.keys + table, width, k, [&](int64_t j) { return chosen[j]; },
      [&](int64_t j) { return score_grad[j] * scale; }, job.query_grad + row * width);
}

template <int kPack, class Real>
__global__ void tables_backward_kernel(Tables<Real> tables, TablesBackward<Real> job) {
  const int64_t key = device::own_row();
  if (key >= tables.num_units * tables.num_keys) return;
  const int64_t first = job.first_K1[key], count = job.first_K1[key + 1] - first;
  const int64_t* hit = job.hit_H + first;
  const Real scale = scale_of(tables, static_cast<int>(key / tables.num_keys));
  const auto k = static_cast<uint32_t>(tables.k);
  const auto row_of = [&](int64_t i) { return static_cast<uint32_t>(hit[i]) / k; };
  sum_bag<kPack>(
      job.y_grad, tables.width, count, row_of, [&](int64_t i) { return job.weight_Rk[hit[i]]; },
      job.values_grad + key * tables.width);
  sum_bag<kPack>(
      job.query, tables.width, count, row_of,
      [&](int64_t i) { return job.score_grad_Rk[hit[i]] * scale; },
      job.keys_grad + key * tables.width);
}

template <class Real>
__global__ void scale_backward_kernel(Tables<Real> tables, const Real* score_grad_Rk,
                                      const Real* score_Rk, Real* scale_grad_u) {
  const int unit = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int64_t first = unit == 0 ? 0 : tables.end_u[unit - 1] * tables.k;
  const int64_t last = tables.end_u[unit] * tables.k;
  double sum = 0;
  for (int64_t hit = first + thread; hit < last; hit += kThreads) {
    sum += static_cast<double>(score_grad_Rk[hit] * score_Rk[hit]);
  }
  sum = device::block_sum<kThreads>(sum);
  if (thread == 0) scale_grad_u[unit] = static_cast<Real>(sum);
}

}  // namespace

template <class Real>
void launch_sums(const Tables<Real>& tables, const Sums<Real>& job, CUstream_st* stream) {
  const auto launch = [&](const RowLaunch& rows, int64_t, auto pack) {
    sums_kernel<decltype(pack)::value><<<rows.grid, rows.block, 0, stream>>>(tables, job);
  };
  device::with_packs<Real>(tables.num_rows, tables.width, launch, tables.keys, tables.values,
                           job.y);
}

template <class Real>
void launch_rows_backward(const Tables<Real>& tables, const RowsBackward<Real>& job,
                          CUstream_st* stream) {
  const auto launch = [&](const RowLaunch& rows, int64_t, auto pack) {
    rows_backward_kernel<decltype(pack)::value><<<rows.grid, rows.block, 0, stream>>>(tables, job);
  };
  device::with_packs<Real>(tables.num_rows, tables.width, launch, tables.keys, tables.values,
                           job.y_grad, job.query_grad);
}

template <class Real>
void launch_tables_backward(const Tables<Real>& tables, const TablesBackward<Real>& job,
                            CUstream_st* stream) {
  const auto launch = [&](const RowLaunch& rows, int64_t, auto pack) {
    tables_backward_kernel<decltype(pack)::value>
        <<<rows.grid, rows.block, 0, stream>>>(tables, job);
  };
  device::with_packs<Real>(tables.num_units * tables.num_keys, tables.width, launch, tables.keys,
                           tables.values, job.y_grad, job.query, job.keys_grad, job.values_grad);
}

template <class Real>
void launch_scale_backward(const Tables<Real>& tables, const Real* score_grad_Rk,
                           const Real* score_Rk, Real* scale_grad_u, CUstream_st* stream) {
  if (tables.num_units == 0) return;
  scale_backward_kernel<<<static_cast<unsigned>(tables.num_units), kThreads, 0, stream>>>(
      tables, score_grad_Rk, score_Rk, scale_grad_u);
}

#define SHOAL_LOOKUP_KERNELS(Real)                                                          \
  template void launch_sums(const Tables<Real>&, const Sums<Real>&, CUstream_st*);          \
  template void launch_rows_backward(const Tables<Real>&, const RowsBackward<Real>&,        \
                                     CUstream_st*);                                         \
  template void launch_tables_backward(const Tables<Real>&, const TablesBackward<Real>&,    \
                                       CUstream_st*);                                       \
  template void launch_scale_backward(const Tables<Real>&, const Real*, const Real*, Real*, \
                                      CUstream_st*);
SHOAL_LOOKUP_KERNELS(float)
SHOAL_LOOKUP_KERNELS(double)
#undef SHOAL_LOOKUP_KERNELS

}  // namespace shoal::memory_lookup_cuda
