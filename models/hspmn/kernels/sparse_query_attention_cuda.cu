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

/// Rows [first, first + count) of a sequence's key head: row q is head q % G of query q / G.
template <class Value>
struct Tile {
  int b, m, first, count;

  __device__ Tile(const Inputs<Value>& in, int b, int m, int index)
      : b(b), m(m), first(index * kRows<Value>) {
    const int left = static_cast<int>(in.offset_b1[b + 1] - in.offset_b1[b]) * in.G - first;
    count = left < kRows<Value> ? left : kRows<Value>;
  }
};

/// The last tiles of the sequences, which see the most keys, first.
template <class Value>
__device__ Tile<Value> own_tile(const Inputs<Value>& in) {
  const int block = static_cast<int>(blockIdx.x), last = static_cast<int>(gridDim.x) - 1;
  return {in, block % in.B, block / in.B % in.M, (last - block) / (in.B * in.M)};
}

/// Keys of which a block has the first kKeys in shared memory.
struct Keys {
  int first, end;
};

/// What a block knows of its tile's rows, in shared memory.
template <class Value>
struct RowTable {
  int64_t place[kRows<Value>];  ///< in [R, N]
  int limit[kRows<Value>];      ///< the last key that the row sees
};

/// Fills the table. Threads must wait for each other before they read it.
template <class Value>
__device__ void fill_table(const Inputs<Value>& in, const Tile<Value>& tile,
                           RowTable<Value>& table) {
  const int row = static_cast<int>(threadIdx.x);
  if (row >= tile.count) return;
  const int packed = tile.first + row, own = packed / in.G;
  const int64_t query = in.offset_b1[tile.b] + own;
  table.place[row] = query * in.N + tile.m * in.G + (packed - own * in.G);
  table.limit[row] = static_cast<int>(in.limit_R[query]);
}

/// Values [R, N, W] of the table's rows; zeros after them. A warp loads a row.
template <class Value>
__device__ void load_rows(const Tile<Value>& tile, const RowTable<Value>& table, const Value* from,
                          int W, Wide<Value> (*to)[kWidth]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int row = warp; row < kRows<Value>; row += kWarps) {
    const Value* own = row < tile.count ? from + table.place[row] * W : nullptr;
    for (int h = lane; h < W; h += 32) to[row][h] = own == nullptr ? Wide<Value>(0) : widen(own[h]);
  }
}

/// Rows [first, end) of keys or values; zeros after them. A warp loads a row.
template <class Value>
__device__ void load_keys(const Tile<Value>& tile, const StridedRows<Value>& from, Keys range,
                          int W, Wide<Value> (*to)[kWidth + 1]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const Value* head = from.data + tile.b * from.sequence + tile.m * from.head;
  for (int key = warp; key < kKeys; key += kWarps) {
    const int place = range.first + key;
    const Value* own = place < range.end ? head + place * from.token : nullptr;
    for (int h = lane; h < W; h += 32) to[key][h] = own == nullptr ? Wide<Value>(0) : widen(own[h]);
  }
}

// All products of the forward pass and of the queries' gradients are in the next two.

/// This lane's key times each row of the warp.
template <class Value>
__device__ void multiply_rows(const Wide<Value> (*rows)[kWidth], const Wide<Value>* key, int W,
                              Wide<Value> (&result)[kWarpRows<Value>]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int r = 0; r < kWarpRows<Value>; ++r) {
    Wide<Value> sum = 0;
    for (int h = 0; h < W; ++h) sum += rows[warp * kWarpRows<Value> + r][h] * key[h];
    result[r] = sum;
  }
}

/// Adds the lanes' weights times their keys to the warp's rows.
template <class Value>
__device__ void add_keys(const Wide<Value> (&weight)[kWarpRows<Value>],
                         const Wide<Value> (*keys)[kWidth + 1], int W,
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
__device__ void write_row(const Inputs<Value>& in, const Forward<Value>& job,
                          const Softmax<Value>& softmax, int r, int64_t place) {
  using Real = Wide<Value>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t part_place = blockIdx.y * in.R * in.N + place;
  const Real total = softmax.total[r];
  const Real log_sum = (softmax.highest[r] + log2(total)) / Real(kLog2OfE);
  if (lane == 0) (job.parts == 1 ? job.log_sum_RN : job.log_sum_PRN)[part_place] = log_sum;
  for (int c = 0; c < kColumns; ++c) {
    const int h = lane + 32 * c;
    if (h >= in.W) continue;
    const Real out = total == Real(0) ? Real(0) : softmax.sum[r][c] / total;
    if (job.parts == 1) {
      job.out_RNW[place * in.W + h] = narrow<Value>(out);
    } else {
      job.out_PRNW[part_place * in.W + h] = out;
    }
  }
}

template <class Value>
__global__ void forward_kernel(Inputs<Value> in, Forward<Value> job) {
  using Real = Wide<Value>;
  using Table = RowTable<Value>;
  constexpr int kTileRows = kRows<Value>;
  __shared__ Real query[kTileRows][kWidth];
  __shared__ Real keys[kKeys][kWidth + 1];
  __shared__ Table table;
  const Tile<Value> tile = own_tile(in);
  if (tile.count <= 0) return;
  fill_table(in, tile, table);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows<Value>;
  const int part_keys = static_cast<int>(job.part_keys), least = table.limit[0];
  Keys range{static_cast<int>(blockIdx.y) * part_keys, table.limit[tile.count - 1] + 1};
  if (range.end > range.first + part_keys) range.end = range.first + part_keys;
  load_rows(tile, table, in.query_RNW, in.W, query);
  Softmax<Value> softmax;
  const Real scale = static_cast<Real>(in.scale * kLog2OfE);
  for (; range.first < range.end; range.first += kKeys) {
    Real weight[kWarpRows<Value>];
    __syncthreads();
    load_keys(tile, in.key, range, in.W, keys);
    __syncthreads();
    multiply_rows<Value>(query, keys[lane], in.W, weight);
    const int key = range.first + lane;
    const bool is_masked = range.first + kKeys > least + 1 || range.first + kKeys > range.end;
    for (int r = 0; r < kWarpRows<Value>; ++r) {
      const int row = first_row + r;
      const bool is_seen =
          !is_masked || (row < tile.count && key < range.end && key <= table.limit[row]);
      weight[r] = softmax.enter(r, weight[r] * scale, is_seen);
    }
    __syncthreads();
    load_keys(tile, in.value, range, in.W, keys);
    __syncthreads();
    add_keys<Value>(weight, keys, in.W, softmax.sum);
  }
  for (int r = 0; r < kWarpRows<Value> && first_row + r < tile.count; ++r) {
    write_row(in, job, softmax, r, table.place[first_row + r]);
  }
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
  for (int h = static_cast<int>(threadIdx.x); h < in.W; h += kBlock) {
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
  using Table = RowTable<Value>;
  constexpr int kTileRows = kRows<Value>;
  __shared__ Real query[kTileRows][kWidth];
  __shared__ Real grad[kTileRows][kWidth];
  __shared__ Real keys[kKeys][kWidth + 1];
  __shared__ Table table;
  const Tile<Value> tile = own_tile(in);
  if (tile.count <= 0) return;
  fill_table(in, tile, table);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows<Value>;
  load_rows(tile, table, in.query_RNW, in.W, query);
  load_rows(tile, table, job.grad_RNW, in.W, grad);
  Real sum[kWarpRows<Value>][kColumns] = {};
  const Real scale = static_cast<Real>(in.scale);
  for (Keys range{0, table.limit[tile.count - 1] + 1}; range.first < range.end;
       range.first += kKeys) {
    Real logit[kWarpRows<Value>], weight[kWarpRows<Value>];
    __syncthreads();
    load_keys(tile, in.value, range, in.W, keys);
    __syncthreads();
    multiply_rows<Value>(grad, keys[lane], in.W, weight);
    __syncthreads();
    load_keys(tile, in.key, range, in.W, keys);
    __syncthreads();
    multiply_rows<Value>(query, keys[lane], in.W, logit);
    for (int r = 0; r < kWarpRows<Value>; ++r) {
      const int row = first_row + r;
      const bool is_seen = row < tile.count && range.first + lane <= table.limit[row];
      const int64_t place = is_seen ? table.place[row] : 0;
      weight[r] = is_seen ? scale * exp(scale * logit[r] - job.log_sum_RN[place]) *
                                (weight[r] - job.dot_RN[place])
                          : Real(0);
    }
    add_keys<Value>(weight, keys, in.W, sum);
  }
  for (int r = 0; r < kWarpRows<Value> && first_row + r < tile.count; ++r) {
    Value* own = job.query_RNW + table.place[first_row + r] * in.W;
    for (int c = 0; c < kColumns; ++c) {
      const int h = lane + 32 * c;
      if (h < in.W) own[h] = narrow<Value>(sum[r][c]);
    }
  }
}

/// The first query of the sequence that sees the key, of those from its offset.
template <class Value>
__device__ int first_query(const Inputs<Value>& in, int b, int key) {
  int64_t low = in.offset_b1[b], high = in.offset_b1[b + 1];
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (in.limit_R[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return static_cast<int>(low - in.offset_b1[b]);
}

/// A block for kKeys keys goes through the rows that see them; each warp sums for kWarpKeys keys.
template <class Value>
__global__ void key_grad_kernel(Inputs<Value> in, Backward<Value> job) {
  using Real = Wide<Value>;
  using Table = RowTable<Value>;
  constexpr int kTileRows = kRows<Value>, kWarpKeys = kKeys / kWarps;
  __shared__ Real query[kTileRows][kWidth];
  __shared__ Real grad[kTileRows][kWidth];
  __shared__ Real keys[kKeys][kWidth + 1];
  __shared__ Real weight[kTileRows][kKeys];
  __shared__ Real logit_grad[kTileRows][kKeys];
  __shared__ Table table;
  const int block = static_cast<int>(blockIdx.x), b = block % in.B, m = block / in.B % in.M;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const Keys range{block / (in.B * in.M) * kKeys, in.S};
  Real key_sum[kWarpKeys][kColumns] = {}, value_sum[kWarpKeys][kColumns] = {};
  const Real scale = static_cast<Real>(in.scale);
  for (int index = first_query(in, b, range.first) * in.G / kTileRows;; ++index) {
    const Tile<Value> tile(in, b, m, index);
    if (tile.count <= 0) break;
    __syncthreads();
    fill_table(in, tile, table);
    load_keys(tile, in.value, range, in.W, keys);
    __syncthreads();
    load_rows(tile, table, in.query_RNW, in.W, query);
    load_rows(tile, table, job.grad_RNW, in.W, grad);
    __syncthreads();
    Real own[kWarpRows<Value>], own_grad[kWarpRows<Value>];
    multiply_rows<Value>(grad, keys[lane], in.W, own_grad);
    __syncthreads();
    load_keys(tile, in.key, range, in.W, keys);
    __syncthreads();
    multiply_rows<Value>(query, keys[lane], in.W, own);
    for (int r = 0; r < kWarpRows<Value>; ++r) {
      const int row = warp * kWarpRows<Value> + r;
      const bool is_seen = row < tile.count && range.first + lane <= table.limit[row];
      const int64_t place = is_seen ? table.place[row] : 0;
      own[r] = is_seen ? exp(scale * own[r] - job.log_sum_RN[place]) : Real(0);
      weight[row][lane] = own[r];
      logit_grad[row][lane] =
          is_seen ? scale * own[r] * (own_grad[r] - job.dot_RN[place]) : Real(0);
    }
    __syncthreads();
    for (int row = 0; row < tile.count; ++row) {
      for (int k = 0; k < kWarpKeys; ++k) {
        for (int c = 0; c < kColumns; ++c) {
          const int h = lane + 32 * c;
          if (h >= in.W) continue;
          key_sum[k][c] += logit_grad[row][warp * kWarpKeys + k] * query[row][h];
          value_sum[k][c] += weight[row][warp * kWarpKeys + k] * grad[row][h];
        }
      }
    }
  }
  for (int k = 0; k < kWarpKeys; ++k) {
    const int own = range.first + warp * kWarpKeys + k;
    for (int c = 0; c < kColumns && own < in.S; ++c) {
      const int h = lane + 32 * c;
      if (h >= in.W) continue;
      const int64_t place = ((int64_t{b} * in.M + m) * in.S + own) * in.W + h;
      job.key_BMSW[place] = narrow<Value>(key_sum[k][c]);
      job.value_BMSW[place] = narrow<Value>(value_sum[k][c]);
    }
  }
}

template <class Value>
unsigned num_tiles(const Inputs<Value>& in) {
  const int64_t rows = in.most_queries * in.G;
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
  const int64_t blocks = int64_t{in.S + kKeys - 1} / kKeys * in.B * in.M;
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
