#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
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

/// Memory for the gradients of keys and values that a thread accumulates in the second-level cache.
constexpr int64_t kGradBytes = 2 * 1056 * 64 * 4;
/// Maximum number of parts of a sequence's keys, each with its own gradients of queries.
constexpr int64_t kMostParts = 4, kLeastPartKeys = 1024;

/// Keys [first, last) of sequence b and head m, whose gradients one thread computes.
struct KeyPart {
  int64_t b, m, index, first, last;
};

template <class Value>
struct QueryBackwardCall {
  using Real = vector_math::Real<Value>;
  SparseShape<Value> shape;
  const Value *query_RNH, *grad_RNH;
  HeadRows<const Value> keys, values;
  const Real *log_sum_RN, *delta_RN;
  /// Query gradients per part, [parts, R, N, H]; only rows that attend to the part are written.
  Real* query_grad;
  int64_t part_elements;
  HeadRows<Value> key_grad, value_grad;
};

template <class Real>
struct BackwardScratch {
  TileMemory<Real> query_QW, query_HQ, grad_QW, grad_HQ, log_sum, delta, logit_KQ, logit_grad_KQ;
  TileMemory<Real> key, value, query_grad_QW, key_grad, value_grad;
  TileMemory<Integer<Real>> limit;
};

/// One step: keys [first, last) of the chunk that starts at `chunk`, and a tile of queries.
struct Step {
  QueryTile tile;
  int64_t rows, Q, chunk, first, last;
};

int64_t keys_of_part(int64_t tokens) {
  const int64_t parts = std::clamp<int64_t>(tokens / kLeastPartKeys, 1, kMostParts);
  return std::max(kKeys, round_up((tokens + parts - 1) / parts, kKeys));
}

/// Arrays of a query tile that are shared by all keys.
template <class Value, class Real>
void load_queries(const QueryBackwardCall<Value>& call, const Step& step,
                  BackwardScratch<Real>& scratch) {
  const SparseShape<Value>& shape = call.shape;
  const int64_t H = shape.H, W = shape.W, Q = step.Q;
  gather_rows(shape, step.tile, call.query_RNH, shape.scale,
              {scratch.query_QW.get(Q * W), scratch.query_HQ.get(H * Q)});
  gather_rows(shape, step.tile, call.grad_RNH, Real(1),
              {scratch.grad_QW.get(Q * W), scratch.grad_HQ.get(H * Q)});
  gather_limits(shape, step.tile, Q, scratch.limit.get(Q));
  Real *log_sum = scratch.log_sum.get(Q), *delta = scratch.delta.get(Q);
  std::fill_n(log_sum, Q, std::numeric_limits<Real>::infinity());  // no probability for padding
  std::fill_n(delta, Q, Real(0));
  for (int64_t q = 0; q < step.rows; ++q) {
    log_sum[q] = call.log_sum_RN[shape.row_of(step.tile, q)];
    delta[q] = call.delta_RN[shape.row_of(step.tile, q)];
  }
  std::fill_n(scratch.query_grad_QW.get(Q * W), Q * W, Real(0));
}

/// Accumulates gradients from a query tile and at most kKeys keys.
template <class Value, class Real>
void differentiate_keys(const QueryBackwardCall<Value>& call, const Step& step,
                        BackwardScratch<Real>& scratch) {
  const SparseShape<Value>& shape = call.shape;
  const QueryTile& tile = step.tile;
  const int64_t rows = step.rows, Q = step.Q, first = step.first, last = step.last;
  const int64_t H = shape.H, W = shape.W, count = last - first, at = (first - step.chunk) * W;
  const RealRows<Real> key = vector_rows(call.keys.rows(tile, first, count), scratch.key);
  const RealRows<Real> value = factor_rows(call.values.rows(tile, first, count), scratch.value);
  Real *share = scratch.logit_KQ.get(0), *grad = scratch.logit_grad_KQ.get(0);
  const auto multiply_queries = [&](const RealRows<Real>& from, const Real* with_HQ, Real* to_KQ) {
    multiply<Real>({.rows = count,
                    .columns = Q,
                    .summed = H,
                    .a = from.data,
                    .a_stride = from.stride,
                    .b = with_HQ,
                    .b_stride = Q,
                    .c = to_KQ,
                    .c_stride = Q});
  };
  const auto add_to_keys = [&](const Real* from_KQ, const Real* with_QW, Real* to_KW) {
    multiply<Real>({.rows = count,
                    .columns = W,
                    .summed = rows,
                    .a = from_KQ,
                    .a_stride = Q,
                    .b = with_QW,
                    .b_stride = W,
                    .c = to_KW,
                    .c_stride = W,
                    .keep = 1});
  };
  multiply_queries(key, scratch.query_HQ.get(0), share);
  multiply_queries(value, scratch.grad_HQ.get(0), grad);
  const bool is_masked = last - 1 > shape.limit_R[tile.first];
  attention_tiles::differentiate_logits<Real>(
      {share, count, Q, first, scratch.limit.get(0), is_masked},
      {scratch.log_sum.get(0), scratch.delta.get(0)}, grad);
  add_to_keys(share, scratch.grad_QW.get(0), scratch.value_grad.get(0) + at);
  add_to_keys(grad, scratch.query_QW.get(0), scratch.key_grad.get(0) + at);
  multiply<Real>({.rows = rows,
                  .columns = W,
                  .summed = count,
                  .a = grad,
                  .a_stride = Q,
                  .a_transposed = true,
                  .b = key.data,
                  .b_stride = key.stride,
                  .c = scratch.query_grad_QW.get(0),
                  .c_stride = W,
                  .keep = 1});
}

/// Adds a tile's gradient to the part's, or overwrites it.
template <class Value, class Real>
void put_query_grad(const QueryBackwardCall<Value>& call, const KeyPart& part,
                    const QueryTile& tile, bool is_first, const Real* from_QW) {
  const SparseShape<Value>& shape = call.shape;
  for (int64_t q = 0; q < shape.rows_of(tile); ++q) {
    Real* to = call.query_grad + part.index * call.part_elements + shape.row_of(tile, q) * shape.H;
    const Real* from = from_QW + q * shape.W;
    for (int64_t h = 0; h < shape.H; ++h) {
      to[h] = (is_first ? Real(0) : to[h]) + shape.scale * from[h];
    }
  }
}

template <class Value, class Real>
void write_gradient_rows(const Real* from_KW, int64_t W, int64_t H, int64_t count,
                         const HeadRows<Value>& to, Value* first) {
  for (int64_t k = 0; k < count; ++k) {
    Value* row = first + k * to.row_stride;
    for (int64_t h = 0; h < H; ++h) vector_math::put(row[h], from_KW[k * W + h]);
  }
}

/// Computes the gradients of a part, chunk by chunk.
template <class Value, class Real>
void differentiate_part(const QueryBackwardCall<Value>& call, const KeyPart& part,
                        BackwardScratch<Real>& scratch) {
  const SparseShape<Value>& shape = call.shape;
  const int64_t W = shape.W, H = shape.H;
  const int64_t chunk_keys =
      std::max(kKeys, kGradBytes / (2 * W * static_cast<int64_t>(sizeof(Real))) / kKeys * kKeys);
  const int64_t* limit = shape.limit_R;
  const int64_t begin = shape.offset_b1[part.b], end = shape.offset_b1[part.b + 1];
  Real* key_grad = scratch.key_grad.get(chunk_keys * W);
  Real* value_grad = scratch.value_grad.get(chunk_keys * W);
  scratch.logit_KQ.get(kKeys * shape.most_rows());
  scratch.logit_grad_KQ.get(kKeys * shape.most_rows());
  for (int64_t chunk = part.first; chunk < part.last; chunk += chunk_keys) {
    const int64_t last = std::min(part.last, chunk + chunk_keys), count = last - chunk;
    std::fill_n(key_grad, count * W, Real(0));
    std::fill_n(value_grad, count * W, Real(0));
    const int64_t first_query = std::lower_bound(limit + begin, limit + end, chunk) - limit;
    for (int64_t r = first_query; r < end; r += shape.positions) {
      const QueryTile tile{part.b, part.m, r, std::min(end, r + shape.positions)};
      const int64_t rows = shape.rows_of(tile), Q = shape.padded_rows_of(tile);
      load_queries(call, {tile, rows, Q, chunk, 0, 0}, scratch);
      const int64_t seen = std::min(last, limit[tile.last - 1] + 1);
      for (int64_t k = chunk; k < seen; k += kKeys) {
        differentiate_keys(call, {tile, rows, Q, chunk, k, std::min(seen, k + kKeys)}, scratch);
      }
      put_query_grad(call, part, tile, chunk == part.first, scratch.query_grad_QW.get(0));
    }
    write_gradient_rows(key_grad, W, H, count, call.key_grad,
                        call.key_grad.row(part.b, part.m, chunk));
    write_gradient_rows(value_grad, W, H, count, call.value_grad,
                        call.value_grad.row(part.b, part.m, chunk));
  }
}

/// Parts of the keys of all sequences and heads.
template <class Value>
std::vector<KeyPart> key_parts(const SparseShape<Value>& shape) {
  const int64_t keys = keys_of_part(shape.S);
  std::vector<KeyPart> parts;
  for (int64_t b = 0; b < shape.B; ++b) {
    for (int64_t m = 0; m < shape.M; ++m) {
      for (int64_t first = 0; first < shape.S; first += keys) {
        parts.push_back({b, m, first / keys, first, std::min(shape.S, first + keys)});
      }
    }
  }
  return parts;
}

/// Number of logits of a part, per query head.
template <class Value>
int64_t cost_of(const SparseShape<Value>& shape, const KeyPart& part) {
  int64_t cost = 0;
  for (int64_t r = shape.offset_b1[part.b]; r < shape.offset_b1[part.b + 1]; ++r) {
    cost += std::max<int64_t>(0, std::min(part.last, shape.limit_R[r] + 1) - part.first);
  }
  return cost;
}

/// Sums the query gradients of all parts.
template <class Value, class Real>
void sum_query_grads(const QueryBackwardCall<Value>& call, int64_t queries, Value* query_grad) {
  const int64_t keys = keys_of_part(call.shape.S), row = call.shape.N * call.shape.H;
  at::parallel_for(0, queries, std::max<int64_t>(1, 16384 / row), [&](int64_t begin, int64_t end) {
    std::vector<Real> sum(static_cast<size_t>(row));
    for (int64_t r = begin; r < end; ++r) {
      std::copy_n(call.query_grad + r * row, row, sum.begin());
      for (int64_t part = 1; part * keys <= call.shape.limit_R[r]; ++part) {
        const Real* from = call.query_grad + part * call.part_elements + r * row;
        for (int64_t i = 0; i < row; ++i) sum[i] += from[i];
      }
      for (int64_t i = 0; i < row; ++i) vector_math::put(query_grad[r * row + i], sum[i]);
    }
  });
}

/// Allocates a tensor like `rows`, with a dense last dimension.
torch::Tensor gradient_like(const torch::Tensor& rows) {
  const torch::Tensor grad = torch::empty_like(rows);
  return grad.stride(-1) == 1 ? grad : torch::empty(rows.sizes(), rows.options());
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> backward_cpu(const torch::Tensor& grad,
                                                                     at::TensorList saved,
                                                                     const torch::Tensor& limit,
                                                                     at::IntArrayRef offset,
                                                                     double scale) {
  const torch::Tensor &query = saved[0], &key = saved[1], &value = saved[2];
  const torch::Tensor &out = saved[3], &log_sum = saved[4];
  const torch::Tensor query_grad = torch::empty(query.sizes(), query.options());
  const torch::Tensor key_grad = gradient_like(key), value_grad = gradient_like(value);
  const torch::Dtype real = log_sum.scalar_type();
  const torch::Tensor delta = (grad.to(real) * out.to(real)).sum(2);
  const int64_t keys = keys_of_part(key.size(2)), parts = (key.size(2) + keys - 1) / keys;
  const torch::Tensor part_grads =
      torch::empty({parts, query.numel()}, query.options().dtype(real));
  for_real_type(query, "sparse_query_attention", [&]<class Value, class Real>(Value, Real) {
    const QueryBackwardCall<Value> call{.shape = {query, key, limit, offset, scale},
                                        .query_RNH = const_data<Value>(query),
                                        .grad_RNH = const_data<Value>(grad),
                                        .keys = HeadRows<const Value>(key),
                                        .values = HeadRows<const Value>(value),
                                        .log_sum_RN = const_data<Real>(log_sum),
                                        .delta_RN = const_data<Real>(delta),
                                        .query_grad = data<Real>(part_grads),
                                        .part_elements = query.numel(),
                                        .key_grad = HeadRows<Value>(key_grad),
                                        .value_grad = HeadRows<Value>(value_grad)};
    const std::vector<KeyPart> parts = key_parts(call.shape);
    std::vector<int64_t> costs;
    for (const KeyPart& part : parts) costs.push_back(cost_of(call.shape, part));
    for_each_by_cost<BackwardScratch<Real>>(
        costs, [&](size_t i, auto& scratch) { differentiate_part(call, parts[i], scratch); });
    if (query.numel() > 0)
      sum_query_grads<Value, Real>(call, query.size(0), data<Value>(query_grad));
  });
  return {query_grad, key_grad, value_grad};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) { m.impl("sparse_query_attention_backward", backward_cpu); }

}  // namespace shoal
