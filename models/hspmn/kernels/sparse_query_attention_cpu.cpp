#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "models/hspmn/kernels/sparse_query_tiles.h"

// B sequences  S tokens  N query heads  M heads of keys and values  G = N / M  H head width
// W head width rounded up to whole vectors  R queries of all sequences
// Q rows of a tile: the G heads of some queries  K keys of a tile
namespace shoal {
namespace {

using namespace sparse_query_tiles;
using attention_tiles::multiply;

/// Number of keys in a part. The softmax starts anew with each part, and parts are added in order,
/// so that results do not depend on whether threads share the keys of a query.
constexpr int64_t kPartKeys = 22 * kKeys;
/// Minimum number of tiles per thread; with fewer, threads share keys.
constexpr int64_t kTilesPerThread = 8;

template <class Value>
struct ForwardCall {
  using Real = vector_math::Real<Value>;
  SparseShape<Value> shape;
  const Value* query_RNH;
  HeadRows<const Value> keys, values;
  Value* out_RNH;
  Real* log_sum_RN;
};

/// A tile's sums over some keys, for each row: of exp(logit - highest) value, and of the factors.
template <class Real>
struct PartResult {
  Real *out_QW, *highest_Q, *sum_Q;
};

template <class Real>
struct ForwardScratch {
  TileMemory<Real> query_HQ, logit_KQ, keep, key, value, part, whole;
  TileMemory<Integer<Real>> limit;
};

template <class Value>
int64_t num_parts(const SparseShape<Value>& shape, const QueryTile& tile) {
  return shape.limit_R[tile.last - 1] / kPartKeys + 1;
}

/// Number of elements in a PartResult.
template <class Value>
int64_t part_size(const SparseShape<Value>& shape) {
  return shape.most_rows() * (shape.W + 2);
}

template <class Value, class Real>
PartResult<Real> part_at(const SparseShape<Value>& shape, Real* memory) {
  const int64_t rows = shape.most_rows();
  return {memory, memory + rows * shape.W, memory + rows * (shape.W + 1)};
}

template <class Value, class Real>
void load_tile_queries(const ForwardCall<Value>& call, const QueryTile& tile,
                       ForwardScratch<Real>& scratch) {
  const int64_t Q = call.shape.padded_rows_of(tile);
  gather_rows(call.shape, tile, call.query_RNH, call.shape.scale,
              {nullptr, scratch.query_HQ.get(call.shape.H * Q)});
  gather_limits(call.shape, tile, Q, scratch.limit.get(Q));
}

/// Attention to the keys of a part. Results of rows that see none of them are unspecified.
template <class Value, class Real>
void attend_part(const ForwardCall<Value>& call, const QueryTile& tile, int64_t part,
                 ForwardScratch<Real>& scratch, const PartResult<Real>& result) {
  const SparseShape<Value>& shape = call.shape;
  const int64_t H = shape.H, W = shape.W, Q = shape.padded_rows_of(tile);
  const int64_t rows = shape.rows_of(tile), begin = part * kPartKeys;
  const int64_t least = shape.limit_R[tile.first];
  const int64_t end = std::min(begin + kPartKeys, shape.limit_R[tile.last - 1] + 1);
  Real *logit_KQ = scratch.logit_KQ.get(kKeys * Q), *keep = scratch.keep.get(Q);
  std::fill_n(result.out_QW, rows * W, Real(0));
  std::fill_n(result.highest_Q, Q, -std::numeric_limits<Real>::infinity());
  std::fill_n(result.sum_Q, Q, Real(0));
  for (int64_t k = begin; k < end; k += kKeys) {
    const int64_t count = std::min(kKeys, end - k);
    const RealRows<Real> key = factor_rows(call.keys.rows(tile, k, count), scratch.key);
    multiply<Real>({.rows = count,
                    .columns = Q,
                    .summed = H,
                    .a = key.data,
                    .a_stride = key.stride,
                    .b = scratch.query_HQ.get(0),
                    .b_stride = Q,
                    .c = logit_KQ,
                    .c_stride = Q,
                    .ahead = {call.values.ahead(tile, k), call.keys.ahead(tile, k + kKeys)}});
    attention_tiles::add_keys<Real>(
        {logit_KQ, count, Q, k, scratch.limit.get(0), k + count - 1 > least},
        {result.highest_Q, result.sum_Q, keep});
    const RealRows<Real> value = vector_rows(call.values.rows(tile, k, count), scratch.value);
    multiply<Real>({.rows = rows,
                    .columns = W,
                    .summed = count,
                    .a = logit_KQ,
                    .a_stride = Q,
                    .a_transposed = true,
                    .b = value.data,
                    .b_stride = value.stride,
                    .c = result.out_QW,
                    .c_stride = W,
                    .keep_row = keep});
  }
}

/// Merges a part into the result of the parts before it, for rows that see any of its keys.
template <class Value, class Real>
void add_part(const SparseShape<Value>& shape, const QueryTile& tile, int64_t part,
              const PartResult<Real>& added, const PartResult<Real>& whole) {
  const int64_t rows = shape.rows_of(tile), W = shape.W;
  for (int64_t q = 0; q < rows; ++q) {
    if (shape.limit_R[tile.first + q / shape.G] < part * kPartKeys) continue;
    Real &highest = whole.highest_Q[q], &sum = whole.sum_Q[q];
    const Real common = std::max(highest, added.highest_Q[q]);
    const Real keep = std::exp(highest - common), take = std::exp(added.highest_Q[q] - common);
    highest = common;
    sum = sum * keep + added.sum_Q[q] * take;
    Real* to = whole.out_QW + q * W;
    const Real* from = added.out_QW + q * W;
    for (int64_t h = 0; h < W; ++h) to[h] = to[h] * keep + from[h] * take;
  }
}

template <class Value, class Real>
void write_tile(const ForwardCall<Value>& call, const QueryTile& tile,
                const PartResult<Real>& whole) {
  const SparseShape<Value>& shape = call.shape;
  for (int64_t q = 0; q < shape.rows_of(tile); ++q) {
    const int64_t row = shape.row_of(tile, q);
    const Real* from = whole.out_QW + q * shape.W;
    const Real scale = Real(1) / whole.sum_Q[q];
    for (int64_t h = 0; h < shape.H; ++h) {
      vector_math::put(call.out_RNH[row * shape.H + h], from[h] * scale);
    }
    call.log_sum_RN[row] = whole.highest_Q[q] + std::log(whole.sum_Q[q]);
  }
}

template <class Value, class Real>
void attend_tile(const ForwardCall<Value>& call, const QueryTile& tile,
                 ForwardScratch<Real>& scratch) {
  const SparseShape<Value>& shape = call.shape;
  const PartResult<Real> whole = part_at(shape, scratch.whole.get(part_size(shape)));
  const PartResult<Real> added = part_at(shape, scratch.part.get(part_size(shape)));
  load_tile_queries(call, tile, scratch);
  attend_part(call, tile, 0, scratch, whole);
  for (int64_t part = 1; part < num_parts(shape, tile); ++part) {
    attend_part(call, tile, part, scratch, added);
    add_part(shape, tile, part, added, whole);
  }
  write_tile(call, tile, whole);
}

template <class Value>
void attend_by_tile(const ForwardCall<Value>& call, const std::vector<QueryTile>& tiles) {
  std::vector<int64_t> costs;
  for (const QueryTile& tile : tiles) {
    costs.push_back((call.shape.limit_R[tile.last - 1] + 1) * (tile.last - tile.first));
  }
  for_each_by_cost<ForwardScratch<typename ForwardCall<Value>::Real>>(
      costs, [&](size_t i, auto& scratch) { attend_tile(call, tiles[i], scratch); });
}

/// Attends with one task per part of the keys, for few tiles; keeps the parts' results in memory.
template <class Value>
void attend_by_part(const ForwardCall<Value>& call, const std::vector<QueryTile>& tiles) {
  using Real = typename ForwardCall<Value>::Real;
  const SparseShape<Value>& shape = call.shape;
  struct Task {
    size_t tile;
    int64_t part;
  };
  std::vector<Task> tasks;
  std::vector<int64_t> costs;
  for (size_t i = 0; i < tiles.size(); ++i) {
    for (int64_t part = 0; part < num_parts(shape, tiles[i]); ++part) {
      tasks.push_back({i, part});
      const int64_t keys = shape.limit_R[tiles[i].last - 1] + 1 - part * kPartKeys;
      costs.push_back(std::min(keys, kPartKeys) * (tiles[i].last - tiles[i].first));
    }
  }
  TileMemory<Real> memory;
  const int64_t size = part_size(shape);
  memory.get(std::ssize(tasks) * size);
  const auto result_of = [&](size_t task) {
    return part_at(shape, memory.get(0) + static_cast<int64_t>(task) * size);
  };
  for_each_by_cost<ForwardScratch<Real>>(costs, [&](size_t i, auto& scratch) {
    load_tile_queries(call, tiles[tasks[i].tile], scratch);
    attend_part(call, tiles[tasks[i].tile], tasks[i].part, scratch, result_of(i));
  });
  for (size_t first = 0, i = 0; i < tasks.size(); ++i) {
    const QueryTile& tile = tiles[tasks[i].tile];
    if (tasks[i].part == 0) first = i;
    if (i > first) add_part(shape, tile, tasks[i].part, result_of(i), result_of(first));
    if (tasks[i].part + 1 == num_parts(shape, tile)) write_tile(call, tile, result_of(first));
  }
}

std::tuple<torch::Tensor, torch::Tensor> forward_cpu(at::TensorList heads,
                                                     const torch::Tensor& limit,
                                                     at::IntArrayRef offset, double scale) {
  const torch::Tensor &query = heads[0], &key = heads[1], &value = heads[2];
  const torch::Tensor out = torch::empty(query.sizes(), query.options());
  torch::Tensor log_sum;
  for_real_type(query, "sparse_query_attention", [&]<class Value, class Real>(Value, Real) {
    log_sum = torch::empty({query.size(0), query.size(1)},
                           query.options().dtype(c10::CppTypeToScalarType<Real>::value));
    const ForwardCall<Value> call{SparseShape<Value>(query, key, limit, offset, scale),
                                  const_data<Value>(query),
                                  HeadRows<const Value>(key),
                                  HeadRows<const Value>(value),
                                  data<Value>(out),
                                  data<Real>(log_sum)};
    const std::vector<QueryTile> tiles = query_tiles(call.shape);
    // Both ways give equal bits.
    const bool are_few = std::ssize(tiles) < kTilesPerThread * at::get_num_threads();
    (are_few ? attend_by_part<Value> : attend_by_tile<Value>)(call, tiles);
  });
  return {out, log_sum};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) { m.impl("sparse_query_attention_forward", forward_cpu); }

}  // namespace shoal
