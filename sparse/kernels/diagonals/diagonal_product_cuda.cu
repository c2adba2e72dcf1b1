#include <cuda_runtime.h>

#include "sparse/kernels/diagonals/diagonal_product_cuda.h"

// D weights of a diagonal, the shorter side  P the longer side  K diagonals
namespace shoal::diagonal_cuda {
namespace {

constexpr int kPlaces = 128;   // of a block, one a thread
constexpr int kTokens = 8;     // whose sums a thread has in registers
constexpr int kDiagonals = 8;  // the same, in dots

/// Elements of the input side that shared memory holds at once: 32 KiB.
template <class Real>
constexpr int kWindow = (32 << 10) / (kTokens * static_cast<int>(sizeof(Real)));

template <class Real>
__device__ Real& at_place(const Side<Real>& side, int64_t token, int place) {
  return side.data[token * side.width + (side.at == nullptr ? place : side.at[place])];
}

/// Loads the block's tokens from element `first` on; zeros for missing tokens.
template <class Real>
__device__ void load_window(const Product<Real>& job, int first, Real (*window)[kWindow<Real>]) {
  const int64_t token = int64_t{blockIdx.x} * kTokens;
  const int left = job.from.width - first;
  const int count = left < kWindow<Real> ? left : kWindow<Real>;
  for (int t = 0; t < kTokens; ++t) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kPlaces) {
      window[t][i] = token + t < job.tokens ? at_place(job.from, token + t, first + i) : Real(0);
    }
  }
}

/// Accumulates the terms in the window for one output element.
template <bool kToLonger, class Real>
__device__ void add_window(const Product<Real>& job, int place, int first,
                           const Real (*window)[kWindow<Real>], Real (&sum)[kTokens]) {
  const int D = job.diagonals.shorter, P = job.diagonals.longer;
  for (int k = 0; k < job.diagonals.count; ++k) {
    const int offset = job.diagonals.offset_K[k];
    int source = kToLonger ? place - offset : place - P + offset;
    if (source < 0) source += P;
    const int weight = kToLonger ? source : place;
    const int i = source - first;
    if (weight >= D || i < 0 || i >= kWindow<Real>) continue;
    const Real value = job.value_KD[int64_t{k} * D + weight];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) sum[t] = fma(value, window[t][i], sum[t]);
  }
}

template <bool kToLonger, class Real>
__global__ void product_kernel(Product<Real> job) {
  __shared__ Real window[kTokens][kWindow<Real>];
  const int place = static_cast<int>(blockIdx.y) * kPlaces + static_cast<int>(threadIdx.x);
  Real sum[kTokens] = {};
  for (int first = 0; first < job.from.width; first += kWindow<Real>) {
    __syncthreads();
    load_window(job, first, window);
    __syncthreads();
    if (place < job.to.width) add_window<kToLonger>(job, place, first, window, sum);
  }
  if (place >= job.to.width) return;
  const int64_t token = int64_t{blockIdx.x} * kTokens;
  for (int t = 0; t < kTokens && token + t < job.tokens; ++t) {
    at_place(job.to, token + t, place) = sum[t];
  }
}

template <class Real>
__global__ void dots_kernel(Dots<Real> job) {
  const int D = job.diagonals.shorter, P = job.diagonals.longer, K = job.diagonals.count;
  const int weight = static_cast<int>(blockIdx.x) * kPlaces + static_cast<int>(threadIdx.x);
  if (weight >= D) return;
  const int first = static_cast<int>(blockIdx.y) * kDiagonals;
  const int count = K - first < kDiagonals ? K - first : kDiagonals;
  int place[kDiagonals];
  for (int k = 0; k < kDiagonals; ++k) {
    const int offset = k < count ? job.diagonals.offset_K[first + k] : 0;
    const int source = weight - P + offset;
    place[k] = source < 0 ? source + P : source;
  }
  Real sum[kDiagonals] = {};
  const int64_t begin = int64_t{blockIdx.z} * job.part_tokens;
  const int64_t end = begin + job.part_tokens < job.tokens ? begin + job.part_tokens : job.tokens;
  for (int64_t t = begin; t < end; ++t) {
    const Real own = job.shorter[t * D + weight];
#pragma unroll
    for (int k = 0; k < kDiagonals; ++k) {
      sum[k] = fma(own, job.longer[t * P + place[k]], sum[k]);
    }
  }
  for (int k = 0; k < count; ++k) {
    job.sum[(int64_t{blockIdx.z} * K + first + k) * D + weight] = sum[k];
  }
}

unsigned groups_of(int64_t total, int64_t size) {
  return static_cast<unsigned>((total + size - 1) / size);
}

}  // namespace

// ---- launchers

template <class Real>
void launch_product(const Product<Real>& job, CUstream_st* stream) {
  const dim3 grid(groups_of(job.tokens, kTokens), groups_of(job.to.width, kPlaces));
  if (job.to_longer) {
    product_kernel<true><<<grid, kPlaces, 0, stream>>>(job);
  } else {
    product_kernel<false><<<grid, kPlaces, 0, stream>>>(job);
  }
}

template <class Real>
void launch_dots(const Dots<Real>& job, CUstream_st* stream) {
  const dim3 grid(groups_of(job.diagonals.shorter, kPlaces),
                  groups_of(job.diagonals.count, kDiagonals), static_cast<unsigned>(job.parts));
  dots_kernel<<<grid, kPlaces, 0, stream>>>(job);
}

template void launch_product(const Product<float>&, CUstream_st*);
template void launch_product(const Product<double>&, CUstream_st*);
template void launch_dots(const Dots<float>&, CUstream_st*);
template void launch_dots(const Dots<double>&, CUstream_st*);

}  // namespace shoal::diagonal_cuda
