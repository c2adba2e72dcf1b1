// Must not fuse: its choices depend on the last bits of scores, which are the CPU's.
#include <cuda_runtime.h>

#include "moe/kernels/best_units.cuh"
#include "moe/kernels/row_top_k_cuda.h"

// T tokens  U units  K choices
namespace shoal::top_k_cuda {
namespace {

using device::kWarp;
using device::LaneBest;
using device::ordered;
using device::own_row;
using device::RowLaunch;
using device::Scored;

template <int kMost, class Real>
__global__ void top_k_kernel(TopK<Real> job) {
  const int64_t row = own_row();
  const bool is_there = row < job.num_tokens;  // all lanes take part in what follows
  const Real* score_U = job.score_TU + row * job.num_units;
  const int num_units = is_there ? static_cast<int>(job.num_units) : 0;
  LaneBest<kMost, Real> best;
  for (int unit = static_cast<int>(threadIdx.x); unit < num_units;
       unit += static_cast<int>(blockDim.x)) {
    best.enter({ordered(score_U[unit]), unit});
  }
  int found = 0;
  for (int j = 0; j < static_cast<int>(job.k); ++j) {
    Scored<Real> next = best.take();
    if (job.score_TK != nullptr && next.score == Real(-INFINITY)) next.unit = j - found;
    found += next.score > Real(-INFINITY) ? 1 : 0;
    if (!is_there || threadIdx.x != 0) continue;
    job.unit_TK[row * job.k + j] = next.unit;
    if (job.score_TK != nullptr) job.score_TK[row * job.k + j] = next.score;
  }
}

constexpr int kBlock = 1024;
constexpr int kDigits = 256;

/// Order in which tokens are marked: by score, then the higher token first.
struct Order {
  uint64_t score;
  uint32_t token;

  __device__ int digit(int byte) const {
    const uint64_t part = byte >= 4 ? score >> (8 * (byte - 4)) : token >> (8 * byte);
    return static_cast<int>(part & 0xff);
  }
  /// Whether all digits above `byte` are the same.
  __device__ bool begins_as(const Order& other, int byte) const {
    if (byte < 4)
      return score == other.score && (uint64_t{token ^ other.token} >> (8 * byte + 8)) == 0;
    return byte == 11 || (score ^ other.score) >> (8 * (byte - 4) + 8) == 0;
  }
  __device__ bool is_at_most(const Order& other) const {
    return score != other.score ? score < other.score : token <= other.token;
  }
};

/// Unsigned numbers in the order of the scores. A double holds every float.
template <class Real>
__device__ Order order_of(Real score, int64_t token) {
  const double value = static_cast<double>(ordered(score)) + 0.0;  // not -0
  const auto bits = static_cast<uint64_t>(__double_as_longlong(value));
  const uint64_t sign = uint64_t{1} << 63;
  return {(bits & sign) != 0 ? ~bits : bits | sign, ~static_cast<uint32_t>(token)};
}

/// Finds the digit of the before-th number from the counts of all digits; `left`: its place among
/// those with the digit. A lane has kDigits / 32 digits. All lanes of one warp must call it.
__device__ void choose_digit(const int* count_of, int before, int* chosen, int* left) {
  constexpr int kOwn = kDigits / kWarp;
  const int lane = static_cast<int>(threadIdx.x);
  int own = 0;
  for (int i = 0; i < kOwn; ++i) own += count_of[lane * kOwn + i];
  int end = own;  // of this lane's numbers in the order
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int other = __shfl_sync(device::kAllLanes, end, lane - distance);
    if (lane >= distance) end += other;
  }
  if (before > end || before <= end - own) return;
  before -= end - own;
  int digit = lane * kOwn;
  while (before > count_of[digit]) before -= count_of[digit++];
  *chosen = digit;
  *left = before;
}

// Radix selection, the highest byte first: the count-th of the order is what `bound` becomes.
template <class Real>
__global__ void __launch_bounds__(kBlock) mark_lowest_kernel(MarkLowest<Real> job) {
  __shared__ int count_of[kDigits];
  __shared__ int chosen;
  __shared__ int left;
  const int64_t first = job.first + int64_t{blockIdx.x} * job.length;
  const Real* score = job.score_T + first;
  Order bound{0, 0};
  int before = static_cast<int>(job.count);
  for (int byte = 11; byte >= 0; --byte) {
    for (int i = threadIdx.x; i < kDigits; i += kBlock) count_of[i] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < job.length; i += kBlock) {
      const Order order = order_of(score[i], i);
      if (order.begins_as(bound, byte)) atomicAdd(&count_of[order.digit(byte)], 1);
    }
    __syncthreads();
    if (threadIdx.x < kWarp) choose_digit(count_of, before, &chosen, &left);
    __syncthreads();
    before = left;
    if (byte >= 4) {
      bound.score |= static_cast<uint64_t>(chosen) << (8 * (byte - 4));
    } else {
      bound.token |= static_cast<uint32_t>(chosen) << (8 * byte);
    }
  }
  for (int64_t i = threadIdx.x; i < job.length; i += kBlock) {
    if (order_of(score[i], i).is_at_most(bound)) job.mark_T[first + i] = true;
  }
}

}  // namespace

template <class Real>
void launch_top_k(const TopK<Real>& job, CUstream_st* stream) {
  if (job.num_tokens == 0) return;
  const RowLaunch launch(job.num_tokens, job.num_units);
  if (job.k == 1) {
    top_k_kernel<1><<<launch.grid, launch.block, 0, stream>>>(job);
  } else if (job.k == 2) {
    top_k_kernel<2><<<launch.grid, launch.block, 0, stream>>>(job);
  } else if (job.k <= 4) {
    top_k_kernel<4><<<launch.grid, launch.block, 0, stream>>>(job);
  } else {
    top_k_kernel<8><<<launch.grid, launch.block, 0, stream>>>(job);
  }
}

template <class Real>
void launch_mark_lowest(const MarkLowest<Real>& job, CUstream_st* stream) {
  if (job.num_runs == 0 || job.count <= 0) return;
  mark_lowest_kernel<<<static_cast<unsigned>(job.num_runs), kBlock, 0, stream>>>(job);
}

template void launch_top_k(const TopK<float>&, CUstream_st*);
template void launch_top_k(const TopK<double>&, CUstream_st*);
template void launch_mark_lowest(const MarkLowest<float>&, CUstream_st*);
template void launch_mark_lowest(const MarkLowest<double>&, CUstream_st*);

}  // namespace shoal::top_k_cuda
