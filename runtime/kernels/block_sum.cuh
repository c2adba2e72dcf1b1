#pragma once

#include <cuda_runtime.h>

namespace shoal::device {

/// Returns the sum of `value` over a block's threads, in a fixed order; valid in thread 0 only. All
/// threads of the block must call. kBlock: number of threads of the block, a power of two.
template <int kBlock>
__device__ inline double block_sum(double value) {
  __shared__ double part[kBlock];
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  part[thread] = value;
  for (int distance = kBlock / 2; distance > 0; distance /= 2) {
    __syncthreads();
    if (thread < distance) part[thread] += part[thread + distance];
  }
  return part[0];
}

}  // namespace shoal::device
