#include <cuda_runtime.h>

#include "runtime/kernels/block_sum.cuh"
#include "runtime/kernels/row_kernels.cuh"
#include "runtime/optim/lamb_cuda.h"

namespace shoal::lamb_cuda {
namespace {

using device::Pack;

constexpr int kBlock = 512;

/// One chunk of the four tensors.
template <class Real>
struct Span {
  Real* w;
  const Real* g;
  Real *m, *v;
  int64_t size;

  __device__ bool is_aligned() const {
    return (reinterpret_cast<uintptr_t>(w) | reinterpret_cast<uintptr_t>(g) |
            reinterpret_cast<uintptr_t>(m) | reinterpret_cast<uintptr_t>(v)) %
               16 ==
           0;
  }
};

template <class Real>
__device__ Span<Real> span_of(const TensorChunks& tensors, const TensorChunk& chunk) {
  const auto at = [&](int list) {
    return static_cast<Real*>(tensors.pointer[list * tensors.num_tensors + chunk.tensor]) +
           chunk.begin;
  };
  return {at(0), at(1), at(2), at(3), chunk.size};
}

/// Calls `body(w, g, m, v)` on references to the values of each place of the span. What is not
/// `const` is stored afterwards: m and v if kAverages, w if kApplies. g is read if kAverages.
template <bool kAverages, bool kApplies, int kPack, class Real, class Body>
__device__ void for_packs(const Span<Real>& span, int64_t first, int64_t packs, const Body& body) {
  using Values = Pack<Real, kPack>;
  const auto at = [&](const Real* values) {
    return reinterpret_cast<Values*>(const_cast<Real*>(values) + first);
  };
  for (int64_t i = threadIdx.x; i < packs; i += kBlock) {
    Values w = at(span.w)[i], m = at(span.m)[i], v = at(span.v)[i], g = {};
    if constexpr (kAverages) g = at(span.g)[i];
#pragma unroll
    for (int e = 0; e < kPack; ++e) body(w.value[e], g.value[e], m.value[e], v.value[e]);
    if constexpr (kAverages) {
      at(span.m)[i] = m;
      at(span.v)[i] = v;
    }
    if constexpr (kApplies) at(span.w)[i] = w;
  }
}

template <bool kAverages, bool kApplies, class Real, class Body>
__device__ void for_values(const Span<Real>& span, const Body& body) {
  constexpr int kPack = device::kPackSize<Real>;
  const int64_t packs = span.is_aligned() ? span.size / kPack : 0;
  for_packs<kAverages, kApplies, kPack>(span, 0, packs, body);
  for_packs<kAverages, kApplies, 1>(span, packs * kPack, span.size - packs * kPack, body);
}

template <class Real>
__global__ void plain_kernel(TensorChunks tensors, LambFactors<Real> f, Real rate) {
  const Span<Real> span = span_of<Real>(tensors, tensors.chunk[blockIdx.x]);
  for_values<true, true>(span, [&](Real& w, Real g, Real& m, Real& v) {
    average(f, g, m, v);
    w -= rate * update_of(f, m, v, w);
  });
}

template <class Real>
__global__ void measure_kernel(TensorChunks tensors, LambFactors<Real> f, double* part_C2) {
  const Span<Real> span = span_of<Real>(tensors, tensors.chunk[blockIdx.x]);
  double weight = 0, update = 0;
  for_values<true, false>(span, [&](Real& w, Real g, Real& m, Real& v) {
    average(f, g, m, v);
    const double weight_value = w, update_value = update_of(f, m, v, w);
    weight += weight_value * weight_value;
    update += update_value * update_value;
  });
  weight = device::block_sum<kBlock>(weight);
  update = device::block_sum<kBlock>(update);
  if (threadIdx.x != 0) return;
  part_C2[2 * int64_t{blockIdx.x}] = weight;
  part_C2[2 * int64_t{blockIdx.x} + 1] = update;
}

/// A block to a matrix.
__global__ void sum_kernel(TensorChunks tensors, Trust trust, const double* part_C2, double* out) {
  double weight = 0, update = 0;
  const int64_t last = tensors.first_chunk[blockIdx.x + 1];
  for (int64_t i = tensors.first_chunk[blockIdx.x] + threadIdx.x; i < last; i += kBlock) {
    weight += part_C2[2 * i];
    update += part_C2[2 * i + 1];
  }
  weight = device::block_sum<kBlock>(weight);
  update = device::block_sum<kBlock>(update);
  if (threadIdx.x != 0) return;
  if (trust.is_wanted) {
    out[blockIdx.x] = trust.learning_rate * trust_ratio(weight, update, trust.clips);
  } else {
    out[2 * int64_t{blockIdx.x}] = weight;
    out[2 * int64_t{blockIdx.x} + 1] = update;
  }
}

template <class Real>
__global__ void apply_kernel(TensorChunks tensors, LambFactors<Real> f, const double* rate_M) {
  const TensorChunk chunk = tensors.chunk[blockIdx.x];
  const Real rate = static_cast<Real>(rate_M[chunk.matrix]);
  for_values<false, true>(span_of<Real>(tensors, chunk), [&](Real& w, Real, Real& m, Real& v) {
    w -= rate * update_of(f, m, v, w);
  });
}

}  // namespace

template <class Real>
void launch_plain(const TensorChunks& tensors, const LambFactors<Real>& factors, Real rate,
                  CUstream_st* stream) {
  if (tensors.num_chunks == 0) return;
  plain_kernel<<<static_cast<unsigned>(tensors.num_chunks), kBlock, 0, stream>>>(tensors, factors,
                                                                                 rate);
}

template <class Real>
void launch_measure(const TensorChunks& tensors, const LambFactors<Real>& factors,
                    const Trust& trust, double* part_C2, double* out, CUstream_st* stream) {
  if (tensors.num_matrices == 0) return;
  const auto chunks = static_cast<unsigned>(tensors.num_chunks);
  if (chunks > 0) measure_kernel<<<chunks, kBlock, 0, stream>>>(tensors, factors, part_C2);
  const auto matrices = static_cast<unsigned>(tensors.num_matrices);
  sum_kernel<<<matrices, kBlock, 0, stream>>>(tensors, trust, part_C2, out);
}

template <class Real>
void launch_apply(const TensorChunks& tensors, const LambFactors<Real>& factors,
                  const double* rate_M, CUstream_st* stream) {
  if (tensors.num_chunks == 0) return;
  apply_kernel<<<static_cast<unsigned>(tensors.num_chunks), kBlock, 0, stream>>>(tensors, factors,
                                                                                 rate_M);
}

#define SHOAL_LAMB_KERNELS(Real)                                                                 \
  template void launch_plain(const TensorChunks&, const LambFactors<Real>&, Real, CUstream_st*); \
  template void launch_measure(const TensorChunks&, const LambFactors<Real>&, const Trust&,      \
                               double*, double*, CUstream_st*);                                  \
  template void launch_apply(const TensorChunks&, const LambFactors<Real>&, const double*,       \
                             CUstream_st*);
SHOAL_LAMB_KERNELS(float)
SHOAL_LAMB_KERNELS(double)
#undef SHOAL_LAMB_KERNELS

}  // namespace shoal::lamb_cuda
