#include <cuda_runtime.h>

#include "runtime/kernels/block_sum.cuh"
#include "runtime/kernels/row_kernels.cuh"
#include "runtime/optim/gradients_cuda.h"

namespace shoal {
namespace {

constexpr int kBlock = 512;

template <class Real>
__device__ double sum_squares(const void* tensor, const TensorChunk& chunk) {
  constexpr int kInFlight = 8;
  const Real* values = static_cast<const Real*>(tensor) + chunk.begin;
  double sum = 0;
  for (int64_t first = threadIdx.x; first < chunk.size; first += kBlock * kInFlight) {
    double held[kInFlight] = {};
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t at = first + i * kBlock;
      if (at < chunk.size) held[i] = device::widen(values[at]);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) sum += held[i] * held[i];
  }
  return sum;
}

__global__ void chunk_kernel(TensorChunks tensors, double* part_C) {
  const TensorChunk chunk = tensors.chunk[blockIdx.x];
  const void* tensor = tensors.pointer[chunk.tensor];
  double sum = 0;
  switch (tensors.type[chunk.tensor]) {
    case ValueType::kFloat:
      sum = sum_squares<float>(tensor, chunk);
      break;
    case ValueType::kDouble:
      sum = sum_squares<double>(tensor, chunk);
      break;
    case ValueType::kBfloat16:
      sum = sum_squares<Bfloat16>(tensor, chunk);
      break;
  }
  sum = device::block_sum<kBlock>(sum);
  if (threadIdx.x == 0) part_C[blockIdx.x] = sum;
}

__global__ void tensor_kernel(TensorChunks tensors, const double* part_C, double* sum_T) {
  double sum = 0;
  const int64_t last = tensors.first_chunk[blockIdx.x + 1];
  for (int64_t i = tensors.first_chunk[blockIdx.x] + threadIdx.x; i < last; i += kBlock) {
    sum += part_C[i];
  }
  sum = device::block_sum<kBlock>(sum);
  if (threadIdx.x == 0) sum_T[blockIdx.x] = sum;
}

}  // namespace

void launch_square_sums(const TensorChunks& tensors, double* part_C, double* sum_T,
                        CUstream_st* stream) {
  if (tensors.num_chunks > 0) {
    chunk_kernel<<<static_cast<unsigned>(tensors.num_chunks), kBlock, 0, stream>>>(tensors, part_C);
  }
  if (tensors.num_matrices > 0) {
    tensor_kernel<<<static_cast<unsigned>(tensors.num_matrices), kBlock, 0, stream>>>(
        tensors, part_C, sum_T);
  }
}

}  // namespace shoal
