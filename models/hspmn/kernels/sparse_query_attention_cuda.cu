#include <cuda_runtime.h>

#include "models/hspmn/kernels/sparse_query_attention_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

// B sequences  S tokens  N query heads  M heads of keys and values  G = N / M  W head width
// R queries of all sequences  P parts of the keys
namespace shoal::sparse_query_cuda {
namespace {

using device::kAllLanes;
using device::narrow;
using device::widen;

constexpr int kWarps = 4;
constexpr int kBlock = 32 * kWarps;
constexpr int kWidth = static_cast<int>(kMostWidth);
constexpr int kColumns = kWidth / 32;  // of a lane
static_assert(kKeys == 32, "a lane has a key");
constexpr double kLog2OfE = 1.4426950408889634;
template <class Value>
constexpr int kWarpRows = kRows<Value> / kWarps;

/// Packed rows of a sequence's key head: row q is head q % G of query q / G.
template <class Value>
struct Tile {
  int64_t b, m, first, rows, G;
  const Inputs<Value>* inputs;

  __device__ Tile(const Inputs<Value>& in, int64_t b, int64_t m, int64_t index)
      : b(b), m(m), first(index * kRows<Value>), G(in.N / in.M), inputs(&in) {
    rows = (in.offset_b1[b + 1] - in.offset_b1[b]) * G - first;
    if (rows > kRows<Value>) rows = kRows<Value>;
  }
  __device__ int64_t query(int64_t row) const { return inputs->offset_b1[b] + (first + row) / G; }
  /// In [R, N].
  __device__ int64_t place(int64_t row) const {
    return query(row) * inputs->N + m * G + (first + row) % G;
  }
  __device__ int64_t limit(int64_t row) const { return inputs->limit_R[query(row)]; }
};

/// The last tiles of the sequences, which see the most keys, first.
template <class Value>
__device__ Tile<Value> own_tile(const Inputs<Value>& in) {
  const int64_t block = blockIdx.x, each = in.B * in.M;
  return {in, block % in.B, block / in.B % in.M, (int64_t{gridDim.x} - 1 - block) / each};
}

template <class Value>
__device__ const Value* row_of(const StridedRows<Value>& rows, int64_t b, int64_t m, int64_t s) {
  return rows.data + b * rows.sequence + m * rows.head + s * rows.token;
}

/// Values [R, N, W] of the tile's rows; zeros after them.
template <class Value>
__device__ void load_rows(const Tile<Value>& tile, const Value* from, Wide<Value> (*to)[kWidth]) {
  const int64_t W = tile.inputs->W;
  for (int64_t i = threadIdx.x; i < kRows<Value> * W; i += kBlock) {
    const int64_t row = i / W, column = i % W;
    to[row][column] = row < tile.rows ? widen(from[tile.place(row) * W + column]) : Wide<Value>(0);
  }
}

/// Rows [first, end) of keys or values; zeros after them.
template <class Value>
__device__ void load_keys(const Tile<Value>& tile, const StridedRows<Value>& from, int64_t first,
                          int64_t end, Wide<Value> (*to)[kWidth + 1]) {
  const int64_t W = tile.inputs->W;
  for (int64_t i = threadIdx.x; i < kKeys * W; i += kBlock) {
    const int64_t key = i / W, column = i % W;
    to[key][column] = first + key < end ? widen(row_of(from, tile.b, tile.m, first + key)[column])
                                        : Wide<Value>(0);
  }
}

// All products of the forward pass and of the queries' gradients are in the next two.

/// This lane's key times each row of the warp.
template <class Value>
__device__ void multiply_rows(const Wide<Value> (*rows)[kWidth], const Wide<Value>* key, int64_t W,
                              Wide<Value> (&result)[kWarpRows<Value>]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int r = 0; r < kWarpRows<Value>; ++r) {
    Wide<Value> sum = 0;
    for (int64_t h = 0; h < W; ++h) sum += rows[warp * kWarpRows<Value> + r][h] * key[h];
    result[r] = sum;
  }
}

/// Adds the lanes' weights times their keys to the warp's rows.
template <class Value>
__device__ void add_keys(const Wide<Value> (&weight)[kWarpRows<Value>],
                         const Wide<Value> (*keys)[kWidth + 1], int64_t W,
                         Wide<Value> (&sum)[kWarpRows<Value>][kColumns]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int key = 0; key < kKeys; ++key) {
    for (int r = 0; r < kWarpRows<Value>; ++r) {
      const Wide<Value> own = __shfl_sync(kAllLanes, weight[r], key);
      for (int c = 0; c < kColumns; ++c) {
        if (lane + 32 * c < W) sum[r][c] += own * keys[key][lane + 32 * c];
      }
    }
  }
}

template <class Real>
__device__ Real max_of_warp(Real value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const Real other = __shfl_xor_sync(kAllLanes, value, distance);
    value = other > value ? other : value;
  }
  return value;
}

template <class Real>
__device__ Real sum_of_warp(Real value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

/// Output of the warp's rows so far: `sum` to be divided by `total`; logits are in powers of two.
template <class Value>
struct Softmax {
  using Real = Wide<Value>;
  Real highest[kWarpRows<Value>], total[kWarpRows<Value>], sum[kWarpRows<Value>][kColumns];

  __device__ Softmax() {
    for (int r = 0; r < kWarpRows<Value>; ++r) {
      highest[r] = -Real(INFINITY);
      total[r] = 0;
      for (int c = 0; c < kColumns; ++c) sum[r][c] = 0;
    }
  }
  /// Turns this lane's logit of a row into its weight.
  __device__ Real enter(int r, Real logit, bool is_seen) {
    const Real most = max_of_warp(is_seen ? logit : -Real(INFINITY));
    const Real common = most > highest[r] ? most : highest[r];
    const Real keep = highest[r] == common ? Real(1) : exp2(highest[r] - common);
    const Real weight = is_seen ? exp2(logit - common) : Real(0);
    highest[r] = common;
    total[r] = total[r] * keep + sum_of_warp(weight);
    for (int c = 0; c < kColumns; ++c) sum[r][c] *= keep;
    return weight;
  }
};

template <class Value>
__device__ void write_row(const Tile<Value>& tile, const Forward<Value>& job,
                          const Softmax<Value>& softmax, int r) {
  using Real = Wide<Value>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = threadIdx.x / 32 * kWarpRows<Value> + r;
  if (row >= tile.rows) return;
  const int64_t W = tile.inputs->W, place = tile.place(row), part = blockIdx.y;
  const int64_t part_place = part * tile.inputs->R * tile.inputs->N + place;
  const Real total = softmax.total[r];
  const Real log_sum = (softmax.highest[r] + log2(total)) / Real(kLog2OfE);
  if (lane == 0) (job.parts == 1 ? job.log_sum_RN : job.log_sum_PRN)[part_place] = log_sum;
  for (int c = 0; c < kColumns; ++c) {
    const int64_t h = lane + 32 * c;
    if (h >= W) continue;
    const Real out = total == Real(0) ? Real(0) : softmax.sum[r][c] / total;
    if (job.parts == 1) {
      job.out_RNW[place * W + h] = narrow<Value>(out);
    } else {
      job.out_PRNW[part_place * W + h] = out;
    }
  }
}

template <class Value>
__global__ void forward_kernel(Inputs<Value> in, Forward<Value> job) {
  using Real = Wide<Value>;
  constexpr int kTileRows = kRows<Value>;
  __shared__ Real query[kTileRows][kWidth];
  __shared__ Real keys[kKeys][kWidth + 1];
  const Tile<Value> tile = own_tile(in);
  if (tile.rows <= 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first_row = threadIdx.x / 32 * kWarpRows<Value>;
  const int64_t begin = int64_t{blockIdx.y} * job.part_keys, least = tile.limit(0);
  int64_t end = tile.limit(tile.rows - 1) + 1;
  if (end > begin + job.part_keys) end = begin + job.part_keys;
  load_rows(tile, in.query_RNW, query);
  Softmax<Value> softmax;
  const Real scale = static_cast<Real>(in.scale * kLog2OfE);
  for (int64_t first = begin; first < end; first += kKeys) {
    Real weight[kWarpRows<Value>];
    __syncthreads();
    load_keys(tile, in.key, first, end, keys);
    __syncthreads();
    multiply_rows<Value>(query, keys[lane], in.W, weight);
    const bool is_masked = first + kKeys > least + 1 || first + kKeys > end;
    for (int r = 0; r < kWarpRows<Value>; ++r) {
      const int64_t row = first_row + r;
      const bool is_seen =
          !is_masked || (row < tile.rows && first + lane < end && first + lane <= tile.limit(row));
      weight[r] = softmax.enter(r, weight[r] * scale, is_seen);
    }
    __syncthreads();
    load_keys(tile, in.value, first, end, keys);
    __syncthreads();
    add_keys<Value>(weight, keys, in.W, softmax.sum);
  }
  for (int r = 0; r < kWarpRows<Value>; ++r) write_row(tile, job, softmax, r);
}

/// A block for each row: O = sum of e^(L_p - L) O_p, L the logarithm of the sum of e^L_p.
template <class Value>
__global__ void merge_kernel(Inputs<Value> in, Forward<Value> job) {
  using Real = Wide<Value>;
  const int64_t row = blockIdx.x, rows = in.R * in.N;
  Real highest = -Real(INFINITY), total = 0;
  for (int64_t p = 0; p < job.parts; ++p) {
    const Real own = job.log_sum_PRN[p * rows + row];
    highest = own > highest ? own : highest;
  }
  for (int64_t p = 0; p < job.parts; ++p) total += exp(job.log_sum_PRN[p * rows + row] - highest);
  const Real log_sum = highest + log(total);
  if (threadIdx.x == 0) job.log_sum_RN[row] = log_sum;
  for (int64_t h = threadIdx.x; h < in.W; h += kBlock) {
    Real sum = 0;
    for (int64_t p = 0; p < job.parts; ++p) {
      const int64_t place = p * rows + row;
      sum += exp(job.log_sum_PRN[place] - log_sum) * job.out_PRNW[place * in.W + h];
    }
    job.out_RNW[row * in.W + h] = narrow<Value>(sum);
  }
}

template <class Value>
__global__ void query_grad_kernel(Inputs<Value> in, Backward<Value> job) {
  using Real = Wide<Value>;
  constexpr int kTileRows = kRows<Value>;
  __shared__ Real query[kTileRows][kWidth];
  __shared__ Real grad[kTileRows][kWidth];
  __shared__ Real keys[kKeys][kWidth + 1];
  const Tile<Value> tile = own_tile(in);
  if (tile.rows <= 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first_row = threadIdx.x / 32 * kWarpRows<Value>;
  const int64_t end = tile.limit(tile.rows - 1) + 1;
  load_rows(tile, in.query_RNW, query);
  load_rows(tile, job.grad_RNW, grad);
  Real sum[kWarpRows<Value>][kColumns] = {};
  const Real scale = static_cast<Real>(in.scale);
  for (int64_t first = 0; first < end; first += kKeys) {
    Real logit[kWarpRows<Value>], weight[kWarpRows<Value>];
    __syncthreads();
    load_keys(tile, in.value, first, end, keys);
    __syncthreads();
    multiply_rows<Value>(grad, keys[lane], in.W, weight);
    __syncthreads();
    load_keys(tile, in.key, first, end, keys);
    __syncthreads();
    multiply_rows<Value>(query, keys[lane], in.W, logit);
    for (int r = 0; r < kWarpRows<Value>; ++r) {
      const int64_t row = first_row + r;
      const bool is_seen = row < tile.rows && first + lane <= tile.limit(row);
      const int64_t place = is_seen ? tile.place(row) : 0;
      weight[r] = is_seen ? scale * exp(scale * logit[r] - job.log_sum_RN[place]) *
                                (weight[r] - job.dot_RN[place])
                          : Real(0);
    }
    add_keys<Value>(weight, keys, in.W, sum);
  }
  for (int r = 0; r < kWarpRows<Value> && first_row + r < tile.rows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      const int64_t h = lane + 32 * c;
      if (h < in.W) job.query_RNW[tile.place(first_row + r) * in.W + h] = narrow<Value>(sum[r][c]);
    }
  }
}

/// The first query of the sequence that sees the key, of those from its offset.
template <class Value>
__device__ int64_t first_query(const Inputs<Value>& in, int64_t b, int64_t key) {
  int64_t low = in.offset_b1[b], high = in.offset_b1[b + 1];
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (in.limit_R[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - in.offset_b1[b];
}

template <class Value>
__device__ Wide<Value> dot_key(const Wide<Value>* row, const Value* key, int64_t W) {
  Wide<Value> sum = 0;
  for (int64_t h = 0; h < W; ++h) sum += row[h] * widen(key[h]);
  return sum;
}

/// A block for kKeys keys goes through the rows that see them; each warp sums for kWarpKeys keys.
template <class Value>
__global__ void key_grad_kernel(Inputs<Value> in, Backward<Value> job) {
  using Real = Wide<Value>;
  constexpr int kTileRows = kRows<Value>, kWarpKeys = kKeys / kWarps;
  __shared__ Real query[kTileRows][kWidth];
  __shared__ Real grad[kTileRows][kWidth];
  __shared__ Real weight[kTileRows][kKeys];
  __shared__ Real logit_grad[kTileRows][kKeys];
  const int64_t b = blockIdx.x % in.B, m = blockIdx.x / in.B % in.M;
  const int64_t first_key = int64_t{blockIdx.x} / (in.B * in.M) * kKeys;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t key = first_key + lane, W = in.W;
  Real key_sum[kWarpKeys][kColumns] = {}, value_sum[kWarpKeys][kColumns] = {};
  const Real scale = static_cast<Real>(in.scale);
  for (int64_t index = first_query(in, b, first_key) * (in.N / in.M) / kTileRows;; ++index) {
    const Tile<Value> tile(in, b, m, index);
    if (tile.rows <= 0) break;
    __syncthreads();
    load_rows(tile, in.query_RNW, query);
    load_rows(tile, job.grad_RNW, grad);
    __syncthreads();
    for (int row = warp; row < kTileRows; row += kWarps) {
      Real own = 0, own_grad = 0;
      if (row < tile.rows && key <= tile.limit(row)) {
        const int64_t place = tile.place(row);
        own =
            exp(scale * dot_key(query[row], row_of(in.key, b, m, key), W) - job.log_sum_RN[place]);
        own_grad =
            scale * own * (dot_key(grad[row], row_of(in.value, b, m, key), W) - job.dot_RN[place]);
      }
      weight[row][lane] = own;
      logit_grad[row][lane] = own_grad;
    }
    __syncthreads();
    for (int row = 0; row < tile.rows; ++row) {
      for (int k = 0; k < kWarpKeys; ++k) {
        for (int c = 0; c < kColumns; ++c) {
          const int64_t h = lane + 32 * c;
          if (h >= W) continue;
          key_sum[k][c] += logit_grad[row][warp * kWarpKeys + k] * query[row][h];
          value_sum[k][c] += weight[row][warp * kWarpKeys + k] * grad[row][h];
        }
      }
    }
  }
  for (int k = 0; k < kWarpKeys; ++k) {
    const int64_t own = first_key + warp * kWarpKeys + k;
    for (int c = 0; c < kColumns && own < in.S; ++c) {
      const int64_t h = lane + 32 * c;
      if (h >= W) continue;
      const int64_t place = ((b * in.M + m) * in.S + own) * W + h;
      job.key_BMSW[place] = narrow<Value>(key_sum[k][c]);
      job.value_BMSW[place] = narrow<Value>(value_sum[k][c]);
    }
  }
}

template <class Value>
unsigned num_tiles(const Inputs<Value>& in) {
  const int64_t rows = in.most_queries * (in.N / in.M);
  return static_cast<unsigned>((rows + kRows<Value> - 1) / kRows<Value> * in.B * in.M);
}

}  // namespace

template <class Value>
void launch_forward(const Inputs<Value>& in, const Forward<Value>& job, CUstream_st* stream) {
  if (in.R == 0) return;
  const dim3 grid(num_tiles(in), static_cast<unsigned>(job.parts));
  forward_kernel<Value><<<grid, kBlock, 0, stream>>>(in, job);
  if (job.parts == 1) return;
  merge_kernel<Value><<<static_cast<unsigned>(in.R * in.N), kBlock, 0, stream>>>(in, job);
}

template <class Value>
void launch_backward(const Inputs<Value>& in, const Backward<Value>& job, CUstream_st* stream) {
  if (in.R > 0) query_grad_kernel<Value><<<num_tiles(in), kBlock, 0, stream>>>(in, job);
  const int64_t blocks = (in.S + kKeys - 1) / kKeys * in.B * in.M;
  if (blocks == 0) return;
  key_grad_kernel<Value><<<static_cast<unsigned>(blocks), kBlock, 0, stream>>>(in, job);
}

template void launch_forward(const Inputs<float>&, const Forward<float>&, CUstream_st*);
template void launch_forward(const Inputs<double>&, const Forward<double>&, CUstream_st*);
template void launch_forward(const Inputs<Bfloat16>&, const Forward<Bfloat16>&, CUstream_st*);
template void launch_backward(const Inputs<float>&, const Backward<float>&, CUstream_st*);
template void launch_backward(const Inputs<double>&, const Backward<double>&, CUstream_st*);
template void launch_backward(const Inputs<Bfloat16>&, const Backward<Bfloat16>&, CUstream_st*);

}  // namespace shoal::sparse_query_cuda
