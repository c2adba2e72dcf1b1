// Must not fuse: random numbers have equal bits on CPU and GPU.
#include <cuda_runtime.h>

#include "runtime/random/random_cuda.h"

// N rows  P values per row

namespace shoal::philox {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxGrid = 1 << 16;

int grid_of(int64_t num_blocks) {
  const int64_t grid = (num_blocks + kThreads - 1) / kThreads;
  return static_cast<int>(grid < kMaxGrid ? grid : kMaxGrid);
}

/// Stores the first `count` values of a block: 16 bytes at once where that is possible.
template <Distribution kDistribution, class Real>
__device__ void store_block(const Words& words, Real* out, int64_t count) {
  alignas(16) Real value[kLanes<Real>];
  values_of<kDistribution>(words, value);
  if (count >= kLanes<Real> && reinterpret_cast<uintptr_t>(out) % 16 == 0) {
    *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(value);
    return;
  }
  for (uint32_t lane = 0; lane < kLanes<Real>; ++lane) {
    if (lane < count) out[lane] = value[lane];
  }
}

template <Distribution kDistribution, class Real>
__global__ void rows_kernel(StreamKey key, RowsOut<Real> rows) {
  const int64_t blocks_per_row = (rows.P + kLanes<Real> - 1) / kLanes<Real>;
  const int64_t num_blocks = rows.N * blocks_per_row;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < num_blocks; i += stride) {
    const int64_t row = i / blocks_per_row;
    const int64_t block = i - row * blocks_per_row;
    const int64_t first = block * kLanes<Real>;
    const uint64_t id =
        static_cast<uint64_t>(rows.id_N[row]) + (static_cast<uint64_t>(block) >> 32);
    const Words words = words_at(key, id, static_cast<uint32_t>(block));
    store_block<kDistribution>(words, rows.out_NP + row * rows.P + first, rows.P - first);
  }
}

}  // namespace

template <class Real>
void launch_rows(const StreamKey& key, Distribution distribution, const RowsOut<Real>& rows,
                 CUstream_st* stream) {
  if (rows.N == 0 || rows.P == 0) return;
  const int grid = grid_of(rows.N * ((rows.P + kLanes<Real> - 1) / kLanes<Real>));
  switch (distribution) {
    case Distribution::kUniform:
      rows_kernel<Distribution::kUniform><<<grid, kThreads, 0, stream>>>(key, rows);
      break;
    case Distribution::kNormal:
      rows_kernel<Distribution::kNormal><<<grid, kThreads, 0, stream>>>(key, rows);
      break;
    case Distribution::kGumbel:
      rows_kernel<Distribution::kGumbel><<<grid, kThreads, 0, stream>>>(key, rows);
      break;
  }
}

template void launch_rows(const StreamKey&, Distribution, const RowsOut<float>&, CUstream_st*);
template void launch_rows(const StreamKey&, Distribution, const RowsOut<double>&, CUstream_st*);

}  // namespace shoal::philox
