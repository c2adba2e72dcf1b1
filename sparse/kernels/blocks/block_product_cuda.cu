#include <cuda_runtime.h>

#include "sparse/kernels/blocks/block_product_cuda.h"

// b side of a block, a multiple of 16  z blocks
namespace shoal::block_cuda {
namespace {

constexpr int kSide = 16;         // of the tiles that a block is cut into, and of threads
constexpr int kThreadTokens = 4;  // whose sums a thread has in registers
constexpr int kTokens = kSide * kThreadTokens;

template <class Real>
__device__ Real& at_place(const Side<Real>& side, int64_t token, int64_t place) {
  return side.data[token * side.width + (side.at == nullptr ? place : side.at[place])];
}

/// Loads kTokens tokens of kSide columns; zeros for missing tokens.
template <class Real>
__device__ void load_tokens(const Product<Real>& job, int64_t place, Real (*tile)[kSide + 1]) {
  for (int t = static_cast<int>(threadIdx.y); t < kTokens; t += kSide) {
    const int64_t token = int64_t{blockIdx.x} * kTokens + t;
    tile[t][threadIdx.x] =
        token < job.tokens ? at_place(job.from, token, place + threadIdx.x) : Real(0);
  }
}

/// Loads the weights of kSide outputs from `row` on and kSide inputs from `column` on of a block,
/// output by input, transposed if this product needs it. Lanes read neighbouring weights.
template <bool kTransposed, class Real>
__device__ void load_weights(const Real* block, int64_t size, int64_t row, int64_t column,
                             Real (*tile)[kSide + 1]) {
  if (kTransposed) {
    tile[threadIdx.x][threadIdx.y] = block[(column + threadIdx.y) * size + row + threadIdx.x];
  } else {
    tile[threadIdx.y][threadIdx.x] = block[(row + threadIdx.y) * size + column + threadIdx.x];
  }
}

/// Computes one tile: kTokens tokens, kSide outputs.
template <bool kTransposed, class Real>
__global__ void product_kernel(Product<Real> job) {
  __shared__ Real token_tile[kTokens][kSide + 1];
  __shared__ Real weight_tile[kSide][kSide + 1];
  const int64_t b = job.size, output = int64_t{blockIdx.y} * kSide;
  const int64_t block_row = output / b, row = output % b;
  Real sum[kThreadTokens] = {};
  for (int z = job.start[block_row]; z < job.start[block_row + 1]; ++z) {
    for (int64_t column = 0; column < b; column += kSide) {
      __syncthreads();
      load_tokens(job, job.column[z] * b + column, token_tile);
      load_weights<kTransposed>(job.values + job.block[z] * b * b, b, row, column, weight_tile);
      __syncthreads();
      for (int i = 0; i < kSide; ++i) {
        const Real weight = weight_tile[threadIdx.x][i];
#pragma unroll
        for (int t = 0; t < kThreadTokens; ++t) {
          sum[t] = fma(weight, token_tile[threadIdx.y + t * kSide][i], sum[t]);
        }
      }
    }
  }
  for (int t = 0; t < kThreadTokens; ++t) {
    const int64_t token = int64_t{blockIdx.x} * kTokens + threadIdx.y + t * kSide;
    if (token < job.tokens) at_place(job.to, token, output + threadIdx.x) = sum[t];
  }
}

/// Computes one tile of gradients: kSide x kSide weights of one block.
template <class Real>
__global__ void dots_kernel(Dots<Real> job) {
  __shared__ Real dy_tile[kSide][kSide + 1];
  __shared__ Real x_tile[kSide][kSide + 1];
  const int64_t b = job.size, tiles = b / kSide, z = blockIdx.x;
  const int64_t row = blockIdx.y / tiles * kSide, column = blockIdx.y % tiles * kSide;
  const int64_t output = job.row[z] * b + row + threadIdx.x;
  const int64_t input = job.column[z] * b + column + threadIdx.x;
  const int64_t begin = int64_t{blockIdx.z} * job.part_tokens;
  const int64_t end = begin + job.part_tokens < job.tokens ? begin + job.part_tokens : job.tokens;
  Real sum = 0;
  for (int64_t first = begin; first < end; first += kSide) {
    const int64_t token = first + threadIdx.y;
    __syncthreads();
    dy_tile[threadIdx.y][threadIdx.x] =
        token < end ? job.dy[token * job.outputs + output] : Real(0);
    x_tile[threadIdx.y][threadIdx.x] = token < end ? job.x[token * job.inputs + input] : Real(0);
    __syncthreads();
    for (int t = 0; t < kSide; ++t) {
      sum = fma(dy_tile[t][threadIdx.y], x_tile[t][threadIdx.x], sum);
    }
  }
  const int64_t block = int64_t{blockIdx.z} * job.count + z;
  job.sum[(block * b + row + threadIdx.y) * b + column + threadIdx.x] = sum;
}

}  // namespace

// ---- launchers

template <class Real>
void launch_product(const Product<Real>& job, CUstream_st* stream) {
  const dim3 block(kSide, kSide);
  const dim3 grid(static_cast<unsigned>((job.tokens + kTokens - 1) / kTokens),
                  static_cast<unsigned>(job.to.width / kSide));
  if (job.is_transposed) {
    product_kernel<true><<<grid, block, 0, stream>>>(job);
  } else {
    product_kernel<false><<<grid, block, 0, stream>>>(job);
  }
}

template <class Real>
void launch_dots(const Dots<Real>& job, CUstream_st* stream) {
  const auto tiles = static_cast<unsigned>(job.size / kSide);
  const dim3 block(kSide, kSide);
  const dim3 grid(static_cast<unsigned>(job.count), tiles * tiles,
                  static_cast<unsigned>(job.parts));
  dots_kernel<<<grid, block, 0, stream>>>(job);
}

template void launch_product(const Product<float>&, CUstream_st*);
template void launch_product(const Product<double>&, CUstream_st*);
template void launch_dots(const Dots<float>&, CUstream_st*);
template void launch_dots(const Dots<double>&, CUstream_st*);

}  // namespace shoal::block_cuda
