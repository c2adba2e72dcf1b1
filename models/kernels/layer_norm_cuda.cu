#include <cuda_runtime.h>

#include "models/kernels/layer_norm_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

// N rows  C width  R runs of kRunRows rows
namespace shoal::layer_norm_cuda {
namespace {

using device::kThreads;
using device::load_wide;
using device::Pack;
using device::store_narrow;
using device::Sum;
using device::sum_lanes;

// A row's lanes read it three times, the last two times from caches.
template <int kPack, class Real>
__global__ void forward_kernel(Norm<Real> norm, Forward<Real> job) {
  const int64_t row = device::own_row();
  const int lanes = static_cast<int>(blockDim.x);
  // All lanes take part in the sums.
  const int packs = row < norm.num_rows ? static_cast<int>(norm.width / kPack) : 0;
  const Real* __restrict__ x = job.x_NC + row * norm.width;
  Real* __restrict__ y = job.y_NC + row * norm.width;
  const auto mean_of = [&](auto term) {
    Sum<Real> sum = 0;
    for (int c = threadIdx.x; c < packs; c += lanes) {
      const auto values = load_wide<kPack>(x, c);
#pragma unroll
      for (int e = 0; e < kPack; ++e) sum += term(values.value[e]);
    }
    return sum_lanes(sum) / static_cast<Sum<Real>>(norm.width);
  };
  const Sum<Real> mean = norm.is_centred ? mean_of([](Sum<Real> value) { return value; }) : 0;
  const Sum<Real> variance =
      mean_of([=](Sum<Real> value) { return (value - mean) * (value - mean); });
  const Sum<Real> rstd = 1 / sqrt(variance + static_cast<Sum<Real>>(job.eps));
  for (int c = threadIdx.x; c < packs; c += lanes) {
    auto values = load_wide<kPack>(x, c);
    const auto weight = load_wide<kPack>(norm.weight_C, c), bias = load_wide<kPack>(job.bias_C, c);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      values.value[e] = (values.value[e] - mean) * rstd * weight.value[e] + bias.value[e];
    }
    store_narrow<kPack>(y, c, values);
  }
  if (packs == 0 || threadIdx.x != 0) return;
  norm.mean_N[row] = mean;
  norm.rstd_N[row] = rstd;
}

// A block works on one run of rows: first on each row's means, then on columns. For a row with
// n = (x - mean) * rstd and g = grad * weight,
// dx = rstd * (g - mean(g) - n * mean(g n)) + the residual's gradient; mean(g) only if centred.
template <int kPack, class Real>
__global__ void backward_kernel(Norm<Real> norm, Backward<Real> job) {
  using Number = Sum<Real>;
  __shared__ Number mean_g[kRunRows];
  __shared__ Number mean_gn[kRunRows];
  const int64_t first = int64_t{blockIdx.x} * kRunRows, rest = norm.num_rows - first;
  const int rows = rest < kRunRows ? static_cast<int>(rest) : kRunRows;
  const int packs = static_cast<int>(norm.width / kPack), lanes = static_cast<int>(blockDim.x);
  const int row_of_block = static_cast<int>(threadIdx.y), rows_of_block = kThreads / lanes;
  const Real* __restrict__ x = job.x_NC + first * norm.width;
  const Real* __restrict__ grad = job.grad_NC + first * norm.width;
  const Number* __restrict__ mean = norm.mean_N + first;
  const Number* __restrict__ rstd = norm.rstd_N + first;
  for (int r = row_of_block; r - row_of_block < rows; r += rows_of_block) {
    const int count = r < rows ? packs : 0;  // all lanes take part in the sums
    Number g_sum = 0, gn_sum = 0;
    for (int c = threadIdx.x; c < count; c += lanes) {
      const auto value = load_wide<kPack>(x, r * packs + c);
      const auto slope = load_wide<kPack>(grad, r * packs + c);
      const auto weight = load_wide<kPack>(norm.weight_C, c);
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        const Number g = slope.value[e] * weight.value[e];
        g_sum += g;
        gn_sum += g * ((value.value[e] - mean[r]) * rstd[r]);
      }
    }
    g_sum = sum_lanes(g_sum) / static_cast<Number>(norm.width);
    gn_sum = sum_lanes(gn_sum) / static_cast<Number>(norm.width);
    if (count == 0 || threadIdx.x != 0) continue;
    mean_g[r] = norm.is_centred ? g_sum : 0;
    mean_gn[r] = gn_sum;
  }
  __syncthreads();
  const Real* __restrict__ residual =
      job.residual_NC == nullptr ? nullptr : job.residual_NC + first * norm.width;
  Real* __restrict__ dx = job.dx_NC + first * norm.width;
  Number* sum_2C = job.sum_R2C + int64_t{blockIdx.x} * 2 * norm.width;
  for (int c = row_of_block * lanes + threadIdx.x; c < packs; c += kThreads) {
    const auto weight = load_wide<kPack>(norm.weight_C, c);
    Pack<Number, kPack> weight_grad = {}, bias_grad = {};
#pragma unroll 4
    for (int r = 0; r < rows; ++r) {
      const auto value = load_wide<kPack>(x, r * packs + c);
      const auto slope = load_wide<kPack>(grad, r * packs + c);
      auto sum = load_wide<kPack>(residual, r * packs + c);
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        const Number n = (value.value[e] - mean[r]) * rstd[r];
        const Number g = slope.value[e] * weight.value[e];
        weight_grad.value[e] += slope.value[e] * n;
        bias_grad.value[e] += slope.value[e];
        sum.value[e] += rstd[r] * (g - mean_g[r] - n * mean_gn[r]);
      }
      store_narrow<kPack>(dx, r * packs + c, sum);
    }
    store_narrow<kPack>(sum_2C, c, weight_grad);
    store_narrow<kPack>(sum_2C, packs + c, bias_grad);
  }
}

}  // namespace

// Packs are 16 bytes of parameters, 8 bytes of bfloat16.

template <class Real>
void launch_forward(const Norm<Real>& norm, const Forward<Real>& job, CUstream_st* stream) {
  const auto launch = [&](const device::RowLaunch& rows, int64_t, auto pack) {
    forward_kernel<decltype(pack)::value><<<rows.grid, rows.block, 0, stream>>>(norm, job);
  };
  device::with_packs<Sum<Real>>(norm.num_rows, norm.width, launch, norm.weight_C, job.bias_C,
                                job.x_NC, job.y_NC);
}

template <class Real>
void launch_backward(const Norm<Real>& norm, const Backward<Real>& job, CUstream_st* stream) {
  const auto launch = [&](const device::RowLaunch& rows, int64_t, auto pack) {
    const auto runs = static_cast<unsigned>((norm.num_rows + kRunRows - 1) / kRunRows);
    backward_kernel<decltype(pack)::value><<<runs, rows.block, 0, stream>>>(norm, job);
  };
  device::with_packs<Sum<Real>>(norm.num_rows, norm.width, launch, norm.weight_C, job.x_NC,
                                job.grad_NC, job.residual_NC, job.dx_NC);
}

template void launch_forward(const Norm<float>&, const Forward<float>&, CUstream_st*);
template void launch_backward(const Norm<float>&, const Backward<float>&, CUstream_st*);
template void launch_forward(const Norm<double>&, const Forward<double>&, CUstream_st*);
template void launch_backward(const Norm<double>&, const Backward<double>&, CUstream_st*);
template void launch_forward(const Norm<Bfloat16>&, const Forward<Bfloat16>&, CUstream_st*);
template void launch_backward(const Norm<Bfloat16>&, const Backward<Bfloat16>&, CUstream_st*);

}  // namespace shoal::layer_norm_cuda
