#pragma once

#include <cstdint>
#include <type_traits>

/// The inner loops of attention, one thread, float32 and float64. Logits and probabilities are
/// transposed: a row holds one key's, for all queries of the tile, so that maxima and sums over
/// keys work on whole vectors. The bits of a query's results are independent of other queries.
// Q queries of a tile, rounded up to whole vectors  K keys of a tile
namespace shoal::attention_tiles {

/// Elements of a vector; the number of columns of a matrix is a multiple of it.
template <class Real>
inline constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(Real));

/// Integer type of Real's width, so that comparisons give masks for whole lanes.
template <class Real>
using Integer = std::conditional_t<sizeof(Real) == 4, int32_t, int64_t>;

/// Rows to prefetch.
struct Ahead {
  const void* data = nullptr;  ///< null: none
  int64_t stride_bytes = 0, row_bytes = 0;
};

/// c [rows, columns] = a [rows, summed] b [summed, columns] + keep c, row-major, rows `…_stride`
/// apart. Each sum is computed in the order of the summed index.
template <class Real>
struct TileProduct {
  int64_t rows, columns, summed;
  const Real* a;
  int64_t a_stride;
  bool a_transposed = false;  ///< true if a is stored as [summed, rows]
  const Real* b;
  int64_t b_stride;
  Real* c;
  int64_t c_stride;
  Real keep = 0;                   ///< 0: c need not be initialised
  const Real* keep_row = nullptr;  ///< a factor for each row of c instead; null: none
  Ahead ahead[2] = {};             ///< as many rows as c has, prefetched meanwhile
};

template <class Real>
void multiply(const TileProduct<Real>& product);

/// A tile of logits, a row per key.
template <class Real>
struct LogitTile {
  Real* logit_KQ;
  int64_t keys, queries;
  int64_t first_key;             ///< key of the first row
  const Integer<Real>* limit_Q;  ///< last key to which a query attends
  bool is_masked;                ///< true if some limit is below the last key
};

/// The softmax over the keys so far.
template <class Real>
struct RunningSoftmax {
  Real* highest_Q;  ///< -inf at first
  Real* sum_Q;      ///< of exp(logit - highest), 0 at first
  Real* keep_Q;     ///< output: factor for results of earlier tiles
};

/// Replaces logits by exp(logit - highest), or 0 beyond limits.
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

/// All logits of a tile of queries; -inf where a query must not attend to a key.
template <class Real>
struct WholeLogits {
  Real* logit_KQ;
  int64_t keys, queries;
};

/// Replaces logits by the softmax of `scale` times each query's `k` highest, and 0 elsewhere. Ties
/// go to the lower key. A query with a NaN logit gets NaN. rank_KQ is overwritten if k is below the
/// number of keys.
template <class Real>
void softmax_of_highest(const WholeLogits<Real>& tile, int64_t k, Real scale,
                        Integer<Real>* rank_KQ);

/// Per-query factors of the outputs, and their gradients.
template <class Real>
struct OutputWeights {
  const Real* weight_Q;
  Real* grad_Q;  ///< output: gradients of the weights
};

/// Backward pass of outputs that are sums of values weighted by probabilities p: replaces the
/// gradients g of p by the logits' gradients p (g - sum of p g), times `factor`. With `weights`, g
/// is of the weighted output, and p is replaced by weight times p.
template <class Real>
void differentiate_softmax(const WholeLogits<Real>& probability, Real factor, Real* grad_KQ,
                           const OutputWeights<Real>* weights = nullptr);

/// to [width, columns] = transpose of `count` rows, `count` at least 1 and `columns` a multiple of
/// kLanes; further columns repeat the last row.
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
