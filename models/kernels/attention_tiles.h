#pragma once

#include <cstdint>
#include <type_traits>

/// Inner loops of attention on the CPU, for one thread, float32 and float64. Logits and
/// probabilities are stored transposed, a row per key with a column per query, so that maxima and
/// sums over keys are vector operations. A query's result is bitwise independent of other queries.
// Q queries of a tile, rounded up to whole vectors  K keys of a tile
namespace shoal::attention_tiles {

/// Elements of a vector; the number of columns of a matrix is a multiple of it.
template <class Real>
inline constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(Real));

/// Integer type of Real's width, so that comparisons give masks for whole lanes.
template <class Real>
using Integer = std::conditional_t<sizeof(Real) == 4, int32_t, int64_t>;

/// Rows in memory that a product prefetches while it computes.
struct Ahead {
  const void* data = nullptr;  ///< null: none
  int64_t stride_bytes = 0, row_bytes = 0;
};

/// Matrix product c [rows, columns] = a [rows, summed] b [summed, columns] + keep c, row-major with
/// strides `…_stride`. Each sum is accumulated in order of the summed index.
template <class Real>
struct TileProduct {
  int64_t rows, columns, summed;
  const Real* a;
  int64_t a_stride;
  bool a_transposed = false;  ///< a is stored as [summed, rows]
  const Real* b;
  int64_t b_stride;
  Real* c;
  int64_t c_stride;
  Real keep = 0;                   ///< 0: c may be uninitialised
  const Real* keep_row = nullptr;  ///< a factor for each row of c in place of `keep`; null: none
  Ahead ahead[2] = {};             ///< up to two: row r of each is prefetched with row r of c
};

template <class Real>
void multiply(const TileProduct<Real>& product);

/// A tile of logits, a row per key.
template <class Real>
struct LogitTile {
  Real* logit_KQ;
  int64_t keys, queries;
  int64_t first_key;             ///< index of the first row's key
  const Integer<Real>* limit_Q;  ///< index of the last key that each query attends to
  bool is_masked;                ///< true if some limit is below the tile's last key
};

/// Online softmax over the keys processed so far.
template <class Real>
struct RunningSoftmax {
  Real* highest_Q;  ///< -inf at first
  Real* sum_Q;      ///< of exp(logit - highest), 0 at first
  Real* keep_Q;     ///< output: factor to rescale results of earlier tiles by
};

/// Replaces logits by exp(logit - highest), and by 0 beyond limits; updates the softmax.
template <class Real>
void add_keys(const LogitTile<Real>& tile, const RunningSoftmax<Real>& softmax);

/// Saved results of a query's softmax.
template <class Real>
struct SavedSoftmax {
  const Real* log_sum_Q;  ///< logarithm of the sum of exp(logit)
  const Real* delta_Q;    ///< inner product of the output and its gradient
};

/// Replaces the logits by probabilities p, and grad_KQ, the gradients g of p, by p (g - delta).
template <class Real>
void differentiate_logits(const LogitTile<Real>& tile, const SavedSoftmax<Real>& saved,
                          Real* grad_KQ);

/// A tile with the logits of all keys; -inf where a query may not attend to a key.
template <class Real>
struct WholeLogits {
  Real* logit_KQ;
  int64_t keys, queries;
};

/// Top-k softmax: replaces each query's `k` highest logits x by softmax(scale x), other logits by
/// 0. Among equal logits the lower key index wins. A NaN logit makes the whole query NaN. rank_KQ
/// is scratch memory, overwritten if k is below the number of keys.
template <class Real>
void softmax_of_highest(const WholeLogits<Real>& tile, int64_t k, Real scale,
                        Integer<Real>* rank_KQ);

/// Per-query factors of the outputs, and their gradients.
template <class Real>
struct OutputWeights {
  const Real* weight_Q;
  Real* grad_Q;  ///< output
};

/// Backward pass of attention with output w p · values, where p = softmax(factor · logits) and w is
/// a factor per query (`weights`; null: 1). On entry grad_KQ holds the gradients g of w p. With d,
/// the sum of p g over a query's keys, grad_KQ becomes factor w p (g - d), the gradients of the
/// logits. The probabilities become w p, and weights->grad_Q becomes d, the gradient of w.
template <class Real>
void differentiate_softmax(const WholeLogits<Real>& probability, Real factor, Real* grad_KQ,
                           const OutputWeights<Real>* weights = nullptr);

/// Transposes `count` rows, at least 1, to [width, columns]. `columns` is a multiple of kLanes;
/// columns from `count` on repeat the last row.
template <class Real>
struct RowTransposition {
  const Real* rows;
  int64_t stride, count, width;
  Real* to;
  int64_t columns;
};

template <class Real>
void transpose_rows(const RowTransposition<Real>& x);

}  // namespace shoal::attention_tiles
