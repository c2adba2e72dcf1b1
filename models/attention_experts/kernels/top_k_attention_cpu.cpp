#include "models/attention_experts/kernels/top_k_attention_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "models/kernels/attention_rows.h"

// I images  N tokens of an image  D width  H head width  W the same rounded up to whole vectors
// R queries of all images  Q queries of a tile, rounded up to whole vectors  K keys of a tile
namespace shoal {
namespace {

using attention_tiles::Ahead;
using attention_tiles::factor_rows;
using attention_tiles::Integer;
using attention_tiles::kLanes;
using attention_tiles::multiply;
using attention_tiles::RealRows;
using attention_tiles::RowsAt;
using attention_tiles::TileMemory;
using attention_tiles::vector_rows;

/// Queries per tile, chosen so that their logits fit into the caches.
constexpr int64_t kTileQueries = 64;

/// One head of an image.
struct HeadTask {
  int64_t image, head;
};

/// Queries [first, last) of a task over its keys [key, key + keys).
struct TopKTile {
  HeadTask task;
  int64_t first, last, key = 0, keys = 0;
  int64_t rows() const { return last - first; }
};

template <class Real>
struct TopKShape {
  int64_t N, H, W;
  const TopKOptions& options;
  const int64_t* token_R;  ///< null: every token of every image
  const std::vector<int64_t>& offset_i1;
  Real scale;
  const Real* weight_R;  ///< null: 1
  int64_t weight_stride;

  TopKShape(const TopKTensors& tensors, const ImageQueries& queries, const TopKOptions& options)
      : N(tensors.key_IND.size(1)),
        H(tensors.key_IND.size(2) / options.heads),
        W(round_up(H, kLanes<Real>)),
        options(options),
        token_R(queries.token_R.defined() ? queries.token_R.const_data_ptr<int64_t>() : nullptr),
        offset_i1(queries.offset_i1),
        scale(static_cast<Real>(1.0 / std::sqrt(static_cast<double>(H)))),
        weight_R(tensors.weight_R.defined() ? tensors.weight_R.const_data_ptr<Real>() : nullptr),
        weight_stride(tensors.weight_R.defined() ? tensors.weight_R.stride(0) : 0) {}

  int64_t token_of(int64_t image, int64_t row) const {
    return token_R == nullptr ? row - offset_i1[image] : token_R[row];
  }
  Real weight_of(int64_t row) const { return weight_R[row * weight_stride]; }
  bool has_window() const { return options.candidates.from == CandidateKind::kWindow; }
  int64_t radius() const { return *options.candidates.window / 2; }
  int64_t padded(const TopKTile& tile) const { return round_up(tile.rows(), kLanes<Real>); }
  /// True if a tile is its whole task, so that gradients of keys need no accumulator.
  bool is_whole(const TopKTile& tile) const {
    return W == H && tile.keys == N && tile.first == offset_i1[tile.task.image] &&
           tile.last == offset_i1[tile.task.image + 1];
  }
};

/// A tile with the keys of the patch rows that its queries see.
template <class Real>
TopKTile tile_of(const TopKShape<Real>& shape, const HeadTask& task, int64_t first, int64_t last) {
  TopKTile tile{task, first, last, 0, shape.N};
  if (!shape.has_window()) return tile;
  const PatchGrid& grid = shape.options.grid;
  int64_t top = grid.rows - 1, bottom = 0;
  for (int64_t r = first; r < last; ++r) {
    const int64_t row = shape.token_of(task.image, r) / grid.columns;
    top = std::min(top, row);
    bottom = std::max(bottom, row);
  }
  top = std::max<int64_t>(0, top - shape.radius());
  bottom = std::min(grid.rows - 1, bottom + shape.radius());
  tile.key = top * grid.columns;
  tile.keys = (bottom - top + 1) * grid.columns;
  return tile;
}

/// Calls body(tile, scratch) for all tiles of each task in order, then end(task, scratch). The
/// heads of an image, whose rows are adjacent, stay on one thread if all threads still have work.
template <class Real, class Scratch, class Body, class End>
void for_each_tile(const TopKShape<Real>& shape, const Body& body, const End& end) {
  const int64_t images = std::ssize(shape.offset_i1) - 1, heads = shape.options.heads;
  const int64_t together = images >= 8 * at::get_num_threads() ? heads : 1;
  std::vector<HeadTask> firsts;
  std::vector<int64_t> costs;
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t head = 0; head < heads; head += together) {
      firsts.push_back({i, head});
      costs.push_back(shape.offset_i1[i + 1] - shape.offset_i1[i]);
    }
  }
  attention_tiles::for_each_by_cost<Scratch>(costs, [&](size_t t, Scratch& scratch) {
    HeadTask task = firsts[t];
    const int64_t first = shape.offset_i1[task.image], last = shape.offset_i1[task.image + 1];
    for (int64_t end_head = task.head + together; task.head < end_head; ++task.head) {
      for (int64_t r = first; r < last; r += kTileQueries) {
        body(tile_of(shape, task, r, std::min(last, r + kTileQueries)), scratch);
      }
      end(task, scratch);
    }
  });
}

/// Rows of one head after another in a tensor: queries [R, D], or keys [I, N, D].
template <class Real>
struct HeadsOf {
  Real* data;
  int64_t image_stride, row_stride, width;

  HeadsOf(const torch::Tensor& x, int64_t width)
      : data(static_cast<Real*>(x.mutable_data_ptr())),
        image_stride(x.dim() == 3 ? x.stride(0) : 0),
        row_stride(x.stride(x.dim() - 2)),
        width(width) {}
  Real* queries(const TopKTile& tile) const {
    return data + tile.first * row_stride + tile.task.head * width;
  }
  Real* keys(const HeadTask& task, int64_t first) const {
    return data + task.image * image_stride + first * row_stride + task.head * width;
  }
  RowsAt<Real> keys(const TopKTile& tile) const {
    return {keys(tile.task, tile.key), row_stride, tile.keys, width};
  }
  /// Rows of the next head to prefetch, which the hardware cannot predict; none after the last.
  Ahead next(const Real* rows, const HeadTask& task, int64_t heads) const {
    if (task.head + 1 == heads) return {};
    const auto bytes = static_cast<int64_t>(sizeof(Real));
    return {rows + width, row_stride * bytes, width * bytes};
  }
};

/// Queries, keys and values of a call.
template <class Real>
struct InputHeads {
  HeadsOf<Real> queries, keys, values;

  InputHeads(const TopKTensors& tensors, int64_t width)
      : queries(tensors.query_RD, width),
        keys(tensors.key_IND, width),
        values(tensors.value_IND, width) {}
};

template <class Real>
struct SharesScratch {
  TileMemory<Real> query_HQ, share_KQ, key;
  TileMemory<Integer<Real>> rank_KQ;
};

/// A tile's rows, transposed. Padding repeats the last row, so that its softmax is as fast.
template <class Real>
const Real* transposed(const TopKShape<Real>& shape, const TopKTile& tile,
                       const HeadsOf<Real>& from, TileMemory<Real>& to) {
  const int64_t Q = shape.padded(tile);
  Real* to_HQ = to.get(shape.H * Q);
  attention_tiles::transpose_rows<Real>(
      {from.queries(tile), from.row_stride, tile.rows(), shape.H, to_HQ, Q});
  return to_HQ;
}

/// Sets the logits of keys outside a query's window to -inf.
template <class Real>
void mask_window(const TopKShape<Real>& shape, const TopKTile& tile, Real* logit_KQ) {
  const int64_t columns = shape.options.grid.columns, radius = shape.radius();
  const int64_t Q = shape.padded(tile);
  for (int64_t q = 0; q < tile.rows(); ++q) {
    const int64_t token = shape.token_of(tile.task.image, tile.first + q);
    for (int64_t key = tile.key; key < tile.key + tile.keys; ++key) {
      const bool is_seen = std::abs(key / columns - token / columns) <= radius &&
                           std::abs(key % columns - token % columns) <= radius;
      if (!is_seen) logit_KQ[(key - tile.key) * Q + q] = -std::numeric_limits<Real>::infinity();
    }
  }
}

/// Probability of each key for each query, [K, Q]. Prefetches keys and values of the next head.
template <class Real>
Real* shares_of(const TopKShape<Real>& shape, const TopKTile& tile, const InputHeads<Real>& of,
                SharesScratch<Real>& scratch) {
  const int64_t Q = shape.padded(tile);
  const Real* query_HQ = transposed(shape, tile, of.queries, scratch.query_HQ);
  const RealRows<Real> key = factor_rows(of.keys.keys(tile), scratch.key);
  Real* share_KQ = scratch.share_KQ.get(tile.keys * Q);
  const auto next_of = [&](const HeadsOf<Real>& x) {
    return x.next(x.keys(tile).data, tile.task, shape.options.heads);
  };
  multiply<Real>({.rows = tile.keys,
                  .columns = Q,
                  .summed = shape.H,
                  .a = key.data,
                  .a_stride = key.stride,
                  .b = query_HQ,
                  .b_stride = Q,
                  .c = share_KQ,
                  .c_stride = Q,
                  .ahead = {next_of(of.keys), next_of(of.values)}});
  if (shape.has_window()) mask_window(shape, tile, share_KQ);
  // Scaled after the choice: rounding of scaled queries would create ties between logits.
  attention_tiles::softmax_of_highest<Real>({share_KQ, tile.keys, Q}, shape.options.k, shape.scale,
                                            scratch.rank_KQ.get(tile.keys * Q));
  return share_KQ;
}

/// Multiplies by the weights of the tile's queries.
template <class Real>
void weight_rows(const TopKShape<Real>& shape, const TopKTile& tile, const HeadsOf<Real>& outputs) {
  if (shape.weight_R == nullptr) return;
  Real* row = outputs.queries(tile);
  for (int64_t r = tile.first; r < tile.last; ++r, row += outputs.row_stride) {
    const Real weight = shape.weight_of(r);
    for (int64_t h = 0; h < shape.H; ++h) row[h] *= weight;
  }
}

/// Factors a [K, Q] and b [K, W] of a product that gives rows of queries.
template <class Real>
struct RowProduct {
  const Real* a_KQ;
  RealRows<Real> b;
  HeadsOf<Real> to;
};

/// The tile's rows = first H columns of aᵀ b. Prefetches the next head's queries.
template <class Real>
void write_rows(const TopKShape<Real>& shape, const TopKTile& tile, const RowProduct<Real>& product,
                const HeadsOf<Real>& queries, TileMemory<Real>& memory) {
  const auto& [a_KQ, b, to] = product;
  const int64_t W = shape.W;
  const bool fits = W == shape.H;
  Real* rows = to.queries(tile);
  Real* y_QW = fits ? rows : memory.get(tile.rows() * W);
  multiply<Real>({.rows = tile.rows(),
                  .columns = W,
                  .summed = tile.keys,
                  .a = a_KQ,
                  .a_stride = shape.padded(tile),
                  .a_transposed = true,
                  .b = b.data,
                  .b_stride = b.stride,
                  .c = y_QW,
                  .c_stride = fits ? to.row_stride : W,
                  .ahead = {queries.next(queries.queries(tile), tile.task, shape.options.heads)}});
  for (int64_t q = 0; !fits && q < tile.rows(); ++q) {
    std::copy_n(y_QW + q * W, shape.H, rows + q * to.row_stride);
  }
}

template <class Real>
struct TopKForwardScratch {
  SharesScratch<Real> shares;
  TileMemory<Real> value, out_QW;
};

template <class Real>
void attend(const TopKTensors& tensors, const TopKShape<Real>& shape, const torch::Tensor& out) {
  using Scratch = TopKForwardScratch<Real>;
  const InputHeads<Real> of(tensors, shape.H);
  const HeadsOf<Real> outputs(out, shape.H);
  for_each_tile<Real, Scratch>(
      shape,
      [&](const TopKTile& tile, Scratch& scratch) {
        const Real* share_KQ = shares_of(shape, tile, of, scratch.shares);
        const RealRows<Real> value = vector_rows(of.values.keys(tile), scratch.value);
        write_rows<Real>(shape, tile, {share_KQ, value, outputs}, of.queries, scratch.out_QW);
        weight_rows(shape, tile, outputs);
      },
      [](const HeadTask&, Scratch&) {});
}

template <class Real>
struct TopKBackwardScratch {
  SharesScratch<Real> shares;
  TileMemory<Real> key, value, grad_HQ, share_grad_KQ, query_QW, grad_QW, query_grad_QW;
  TileMemory<Real> key_grad_NW, value_grad_NW, weight_Q, weight_grad_Q;
  int64_t added = 0;        ///< tiles of the task so far
  bool is_written = false;  ///< the task's gradients of keys and values are in place
};

/// Copies a tile's rows contiguously, padded for vector loads.
template <class Real>
RealRows<Real> rows_of(const TopKTile& tile, const HeadsOf<Real>& from, TileMemory<Real>& to) {
  return vector_rows(RowsAt<Real>{from.queries(tile), from.row_stride, tile.rows(), from.width},
                     to);
}

/// Accumulators [N, W] for the gradients of a task's keys or values.
template <class Real>
struct KeySums {
  Real* data;
  int64_t stride;
  Real keep = 1;  ///< 0: not initialised
};

/// sum = sum * keep + a [K, Q] b [Q, W] at the tile's keys.
template <class Real>
void add_to_keys(const TopKShape<Real>& shape, const TopKTile& tile, const Real* a_KQ,
                 const RealRows<Real>& b, const KeySums<Real>& sum) {
  multiply<Real>({.rows = tile.keys,
                  .columns = shape.W,
                  .summed = tile.rows(),
                  .a = a_KQ,
                  .a_stride = shape.padded(tile),
                  .b = b.data,
                  .b_stride = b.stride,
                  .c = sum.data + tile.key * sum.stride,
                  .c_stride = sum.stride,
                  .keep = sum.keep});
}

/// Inputs and outputs of the backward pass.
template <class Real>
struct BackwardCall {
  InputHeads<Real> of;
  HeadsOf<Real> grads;   ///< of the outputs
  InputHeads<Real> to;   ///< gradients of the inputs
  bool adds_to_keys;     ///< gradients of keys and values are added to what is there
  Real* weight_grad_AR;  ///< of each head; null: there are no weights
};

/// A tile's probabilities, and the gradients of them or of their logits.
template <class Real>
struct ShareGrads {
  Real *share_KQ, *grad_KQ;
};

/// Replaces gradients of probabilities by those of logits, and multiplies probabilities by weights.
template <class Real>
void differentiate_shares(const TopKShape<Real>& shape, const TopKTile& tile,
                          const BackwardCall<Real>& call, const ShareGrads<Real>& shares,
                          TopKBackwardScratch<Real>& scratch) {
  const auto [share_KQ, grad_KQ] = shares;
  const int64_t Q = shape.padded(tile);
  const attention_tiles::WholeLogits<Real> share{share_KQ, tile.keys, Q};
  if (call.weight_grad_AR == nullptr) {
    attention_tiles::differentiate_softmax<Real>(share, shape.scale, grad_KQ);
    return;
  }
  Real* weight_Q = scratch.weight_Q.get(Q);
  Real* weight_grad_Q = scratch.weight_grad_Q.get(Q);
  for (int64_t q = 0; q < Q; ++q) {
    weight_Q[q] = q < tile.rows() ? shape.weight_of(tile.first + q) : Real(0);
  }
  const attention_tiles::OutputWeights<Real> weights{weight_Q, weight_grad_Q};
  attention_tiles::differentiate_softmax<Real>(share, shape.scale, grad_KQ, &weights);
  std::copy_n(weight_grad_Q, tile.rows(),
              call.weight_grad_AR + tile.task.head * shape.offset_i1.back() + tile.first);
}

template <class Real>
void differentiate_tile(const TopKShape<Real>& shape, const TopKTile& tile,
                        const BackwardCall<Real>& call, TopKBackwardScratch<Real>& scratch) {
  const int64_t Q = shape.padded(tile);
  scratch.is_written = shape.is_whole(tile);
  const auto sums = [&](const HeadsOf<Real>& to, TileMemory<Real>& memory) {
    if (scratch.is_written) {
      return KeySums<Real>{to.keys(tile.task, 0), to.row_stride, Real(call.adds_to_keys ? 1 : 0)};
    }
    const int64_t size = shape.N * shape.W;
    Real* sum_NW = memory.get(size);
    if (scratch.added == 0) std::fill_n(sum_NW, size, Real(0));
    return KeySums<Real>{sum_NW, shape.W};
  };
  const KeySums<Real> key_grad = sums(call.to.keys, scratch.key_grad_NW);
  const KeySums<Real> value_grad = sums(call.to.values, scratch.value_grad_NW);
  ++scratch.added;
  Real* share_KQ = shares_of(shape, tile, call.of, scratch.shares);
  const Real* grad_HQ = transposed(shape, tile, call.grads, scratch.grad_HQ);
  const RealRows<Real> value = factor_rows(call.of.values.keys(tile), scratch.value);
  Real* logit_grad_KQ = scratch.share_grad_KQ.get(tile.keys * Q);
  multiply<Real>({.rows = tile.keys,
                  .columns = Q,
                  .summed = shape.H,
                  .a = value.data,
                  .a_stride = value.stride,
                  .b = grad_HQ,
                  .b_stride = Q,
                  .c = logit_grad_KQ,
                  .c_stride = Q});
  differentiate_shares<Real>(shape, tile, call, {share_KQ, logit_grad_KQ}, scratch);
  add_to_keys(shape, tile, share_KQ, rows_of(tile, call.grads, scratch.grad_QW), value_grad);
  const RealRows<Real> key = vector_rows(call.of.keys.keys(tile), scratch.key);
  write_rows<Real>(shape, tile, {logit_grad_KQ, key, call.to.queries}, call.of.queries,
                   scratch.query_grad_QW);
  add_to_keys(shape, tile, logit_grad_KQ, rows_of(tile, call.of.queries, scratch.query_QW),
              key_grad);
}

/// Writes a task's accumulated gradients; zeros if it has no tiles.
template <class Real>
void write_key_sums(const TopKShape<Real>& shape, const HeadTask& task, const HeadsOf<Real>& to,
                    bool adds, const Real* sum_NW) {
  for (int64_t n = 0; n < shape.N; ++n) {
    Real* row = to.keys(task, n);
    if (sum_NW == nullptr) {
      if (!adds) std::fill_n(row, shape.H, Real(0));
    } else if (adds) {
      for (int64_t h = 0; h < shape.H; ++h) row[h] += sum_NW[n * shape.W + h];
    } else {
      std::copy_n(sum_NW + n * shape.W, shape.H, row);
    }
  }
}

template <class Body>
void for_top_k_type(const TopKTensors& tensors, const ImageQueries& queries,
                    const TopKOptions& options, const Body& body) {
  TORCH_CHECK(options.candidates.from != CandidateKind::kPooled,
              "top_k_attention: the CPU kernel supports no pooled candidates");
  if (tensors.query_RD.scalar_type() == torch::kFloat64) {
    body(TopKShape<double>(tensors, queries, options));
  } else {
    body(TopKShape<float>(tensors, queries, options));
  }
}

}  // namespace

void attend_top_k_cpu(const TopKTensors& tensors, const ImageQueries& queries,
                      const TopKOptions& options, const torch::Tensor& out_RD) {
  for_top_k_type(tensors, queries, options,
                 [&](const auto& shape) { attend(tensors, shape, out_RD); });
}

void differentiate_top_k_cpu(const torch::Tensor& grad_RD, const TopKTensors& tensors,
                             const GradTensors& to, const ImageQueries& queries,
                             const TopKOptions& options) {
  const TopKTensors& grads = to.tensors;
  torch::Tensor weight_grad_AR;
  if (grads.weight_R.defined()) {
    weight_grad_AR = torch::empty({options.heads, grad_RD.size(0)}, grads.weight_R.options());
  }
  for_top_k_type(tensors, queries, options, [&]<class Real>(const TopKShape<Real>& shape) {
    using Scratch = TopKBackwardScratch<Real>;
    const BackwardCall<Real> call{
        InputHeads<Real>(tensors, shape.H), HeadsOf<Real>(grad_RD, shape.H),
        InputHeads<Real>(grads, shape.H), to.adds_to_keys,
        weight_grad_AR.defined() ? weight_grad_AR.mutable_data_ptr<Real>() : nullptr};
    for_each_tile<Real, Scratch>(
        shape, [&](const TopKTile& tile, Scratch& s) { differentiate_tile(shape, tile, call, s); },
        [&](const HeadTask& task, Scratch& s) {
          const bool has_tiles = std::exchange(s.added, 0) > 0;
          if (std::exchange(s.is_written, false)) return;
          const auto sums = [&](TileMemory<Real>& x) { return has_tiles ? x.get(0) : nullptr; };
          write_key_sums(shape, task, call.to.keys, call.adds_to_keys, sums(s.key_grad_NW));
          write_key_sums(shape, task, call.to.values, call.adds_to_keys, sums(s.value_grad_NW));
        });
  });
  if (weight_grad_AR.defined()) grads.weight_R.copy_(weight_grad_AR.sum(0));
}

}  // namespace shoal
