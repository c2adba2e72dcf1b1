#include "models/kernels/attention_tiles.h"

#include <limits>
#include <utility>

#include "runtime/device/cpu_clones.h"

#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed to inlined functions only

// Q queries of a tile, rounded up to whole vectors  K keys of a tile
namespace shoal::attention_tiles {
namespace {

template <class Real>
struct Vector {
  typedef Real Lanes __attribute__((vector_size(64)));
  typedef Integer<Real> Index __attribute__((vector_size(64)));
};
template <class Real>
using Lanes = typename Vector<Real>::Lanes;
template <class Real>
using Index = typename Vector<Real>::Index;

template <class To, class From>
SHOAL_INLINE To load(const From* from) {
  To lanes;
  __builtin_memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

template <class Real>
SHOAL_INLINE void store(Real* to, const Lanes<Real>& lanes) {
  __builtin_memcpy(to, &lanes, sizeof lanes);
}

template <class Real>
constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

template <class Real>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float kLog2 = 0.693359375f, kLog2Rest = -2.12194440e-4f;
  static constexpr float kLowest = -87.0f;
  static constexpr int kBias = 127, kFraction = 23;
  static constexpr float kTerm[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                    4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
};
template <>
struct ExpConstants<double> {
  static constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kLog2 = 6.93147180369123816490e-01,
                          kLog2Rest = 1.90821492927058770002e-10;
  static constexpr double kLowest = -708.0;
  static constexpr int kBias = 1023, kFraction = 52;
  // 1 / 13! to 1 / 2!: the rest of the series is below 2^-57 for |r| <= log(2) / 2.
  static constexpr double kTerm[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
      1.0 / 5040,       1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2};
};

/// exp within two roundings for arguments up to 88, 0 below -87 (float64: -708); NaN for NaN.
template <class Real>
SHOAL_INLINE Lanes<Real> exp_of(const Lanes<Real>& x) {
  using C = ExpConstants<Real>;
  const Lanes<Real> shifted = x * Real(1.44269504088896340736) + C::kShift;
  const Lanes<Real> n = shifted - C::kShift;
  const Lanes<Real> r = (x - n * C::kLog2) - n * C::kLog2Rest;
  Lanes<Real> p = r * C::kTerm[0] + C::kTerm[1];
  for (size_t i = 2; i < sizeof(C::kTerm) / sizeof(Real); ++i) p = p * r + C::kTerm[i];
  p = p * (r * r) + r + Real(1);
  // The shift's own exponent and leading bit leave the low bits, which hold n.
  const Index<Real> power = (reinterpret_cast<Index<Real>>(shifted) + C::kBias) << C::kFraction;
  return x < C::kLowest ? Lanes<Real>{} : p * reinterpret_cast<Lanes<Real>>(power);
}

template <class Real>
SHOAL_INLINE void fetch_ahead(const TileProduct<Real>& p, int64_t r, int64_t rows) {
  for (const Ahead& ahead : p.ahead) {
    if (ahead.data == nullptr) continue;
    for (int64_t i = r; i < r + rows; ++i) {
      const char* row = static_cast<const char*>(ahead.data) + i * ahead.stride_bytes;
      for (int64_t at = 0; at < ahead.row_bytes; at += 64) __builtin_prefetch(row + at);
    }
  }
}

template <int kRows, int kVectors, bool kTransposed, class Real>
SHOAL_INLINE void multiply_block(const TileProduct<Real>& p, int64_t r, int64_t n) {
  const Real* a = p.a + (kTransposed ? r : r * p.a_stride);
  const Real* b = p.b + n;
  if (n == 0) fetch_ahead(p, r, kRows);
  Lanes<Real> sum[kRows][kVectors] = {};
  for (int64_t k = 0; k < p.summed; ++k) {
    Lanes<Real> row[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      row[j] = load<Lanes<Real>>(b + k * p.b_stride + j * kLanes<Real>);
    }
    for (int i = 0; i < kRows; ++i) {
      const Real factor = kTransposed ? a[k * p.a_stride + i] : a[i * p.a_stride + k];
      for (int j = 0; j < kVectors; ++j) sum[i][j] += factor * row[j];
    }
  }
  const bool is_kept = p.keep_row != nullptr || p.keep != 0;
  for (int i = 0; i < kRows; ++i) {
    Real* c = p.c + (r + i) * p.c_stride + n;
    const Real keep = p.keep_row != nullptr ? p.keep_row[r + i] : p.keep;
    for (int j = 0; j < kVectors; ++j) {
      Real* to = c + j * kLanes<Real>;
      store<Real>(to, is_kept ? load<Lanes<Real>>(to) * keep + sum[i][j] : sum[i][j]);
    }
  }
}

template <int kRows, int kVectors, bool kTransposed, class Real>
SHOAL_INLINE void multiply_columns(const TileProduct<Real>& p, int64_t n) {
  int64_t r = 0;
  for (; r + kRows <= p.rows; r += kRows) multiply_block<kRows, kVectors, kTransposed>(p, r, n);
  for (; r + 4 <= p.rows; r += 4) multiply_block<4, kVectors, kTransposed>(p, r, n);
  for (; r < p.rows; ++r) multiply_block<1, kVectors, kTransposed>(p, r, n);
}

// Keeps as many sums as fit into the registers: 32 of 64 bytes, else 16 of 32.
template <bool kTransposed, class Real>
SHOAL_INLINE void multiply_any(const TileProduct<Real>& p, bool has_wide_registers) {
  int64_t n = 0;
  while (n < p.columns) {
    const int64_t left = (p.columns - n) / kLanes<Real>;
    if (!has_wide_registers) {
      multiply_columns<6, 1, kTransposed>(p, n);
      n += kLanes<Real>;
    } else if (left == 3 || left == 5 || left == 6 || left == 9) {
      multiply_columns<8, 3, kTransposed>(p, n);
      n += 3 * kLanes<Real>;
    } else if (left >= 4) {
      multiply_columns<6, 4, kTransposed>(p, n);
      n += 4 * kLanes<Real>;
    } else if (left == 2) {
      multiply_columns<12, 2, kTransposed>(p, n);
      n += 2 * kLanes<Real>;
    } else {
      multiply_columns<8, 1, kTransposed>(p, n);
      n += kLanes<Real>;
    }
  }
}

template <bool kTransposed, class Real>
SHOAL_CPU_CLONES void multiply_oriented(const TileProduct<Real>& p, bool has_wide_registers) {
  multiply_any<kTransposed>(p, has_wide_registers);
}

bool has_wide_registers() {
#if defined(__x86_64__)
  static const bool result = __builtin_cpu_supports("avx512f");
  return result;
#else
  return true;
#endif
}

/// Exchanges, in a pair of rows, the elements of `a` whose index has the bit kHalf with those of
/// `b` whose index lacks it.
template <class Real, int kHalf, size_t... kPlace>
SHOAL_INLINE void exchange_halves(Lanes<Real>& a, Lanes<Real>& b, std::index_sequence<kPlace...>) {
  constexpr int kSide = sizeof...(kPlace);
  const Lanes<Real> first = a, second = b;
  a = __builtin_shufflevector(first, second,
                              ((kPlace & kHalf) != 0 ? kSide + static_cast<int>(kPlace) - kHalf
                                                     : static_cast<int>(kPlace))...);
  b = __builtin_shufflevector(first, second,
                              ((kPlace & kHalf) != 0 ? kSide + static_cast<int>(kPlace)
                                                     : static_cast<int>(kPlace) + kHalf)...);
}

/// Transposes a square of kLanes rows by exchanging halves of growing pairs of rows.
template <class Real, int kHalf = 1>
SHOAL_INLINE void exchange_rows(Lanes<Real>* row) {
  constexpr int kSide = kLanes<Real>;
  if constexpr (kHalf < kSide) {
    for (int i = 0; i < kSide; ++i) {
      if ((i & kHalf) != 0) continue;
      exchange_halves<Real, kHalf>(row[i], row[i + kHalf], std::make_index_sequence<kSide>());
    }
    exchange_rows<Real, 2 * kHalf>(row);
  }
}

/// Transposes a kLanes x kLanes square from row r, column h; past the last row it repeats that row.
template <class Real>
SHOAL_INLINE void transpose_square(const RowTransposition<Real>& x, int64_t r, int64_t h) {
  constexpr int64_t kSide = kLanes<Real>;
  Lanes<Real> row[kSide];
  for (int64_t i = 0; i < kSide; ++i) {
    const int64_t from = r + i < x.count ? r + i : x.count - 1;
    row[i] = load<Lanes<Real>>(x.rows + from * x.stride + h);
  }
  exchange_rows<Real>(row);
  for (int64_t i = 0; i < kSide; ++i) store<Real>(x.to + (h + i) * x.columns + r, row[i]);
}

template <class Real>
SHOAL_CPU_CLONES void transpose_with(const RowTransposition<Real>& x, bool has_wide_registers) {
  int64_t h = 0;
  for (; has_wide_registers && h + kLanes<Real> <= x.width; h += kLanes<Real>) {
    for (int64_t r = 0; r < x.columns; r += kLanes<Real>) transpose_square(x, r, h);
  }
  for (; h < x.width; ++h) {
    Real* to = x.to + h * x.columns;
    for (int64_t r = 0; r < x.columns; ++r) {
      to[r] = x.rows[(r < x.count ? r : x.count - 1) * x.stride + h];
    }
  }
}

/// True where a query attends to a key.
template <class Real>
SHOAL_INLINE Index<Real> sees(const LogitTile<Real>& tile, const Index<Real>& limit, int64_t k) {
  return static_cast<Integer<Real>>(tile.first_key + k) <= limit;
}

template <bool kMasked, class Real>
SHOAL_INLINE void add_keys_any(const LogitTile<Real>& tile, const RunningSoftmax<Real>& softmax) {
  for (int64_t q = 0; q < tile.queries; q += kLanes<Real>) {
    Real* logit = tile.logit_KQ + q;
    const auto limit = load<Index<Real>>(tile.limit_Q + q);
    const auto before = load<Lanes<Real>>(softmax.highest_Q + q);
    Lanes<Real> highest = before;
    for (int64_t k = 0; k < tile.keys; ++k) {
      auto x = load<Lanes<Real>>(logit + k * tile.queries);
      if constexpr (kMasked) {
        x = sees(tile, limit, k) ? x : Lanes<Real>{} - kInfinity<Real>;
        store<Real>(logit + k * tile.queries, x);
      }
      highest = x > highest ? x : highest;
    }
    const Lanes<Real> keep = exp_of<Real>(before - highest);
    Lanes<Real> sum = load<Lanes<Real>>(softmax.sum_Q + q) * keep;
    for (int64_t k = 0; k < tile.keys; ++k) {
      Real* at = logit + k * tile.queries;
      const Lanes<Real> share = exp_of<Real>(load<Lanes<Real>>(at) - highest);
      store<Real>(at, share);
      sum += share;
    }
    store<Real>(softmax.highest_Q + q, highest);
    store<Real>(softmax.sum_Q + q, sum);
    store<Real>(softmax.keep_Q + q, keep);
  }
}

template <bool kMasked, class Real>
SHOAL_INLINE void differentiate_any(const LogitTile<Real>& tile, const SavedSoftmax<Real>& saved,
                                    Real* grad_KQ) {
  for (int64_t q = 0; q < tile.queries; q += kLanes<Real>) {
    const auto limit = load<Index<Real>>(tile.limit_Q + q);
    const auto log_sum = load<Lanes<Real>>(saved.log_sum_Q + q);
    const auto delta = load<Lanes<Real>>(saved.delta_Q + q);
    for (int64_t k = 0; k < tile.keys; ++k) {
      Real* logit = tile.logit_KQ + k * tile.queries + q;
      Real* grad = grad_KQ + k * tile.queries + q;
      Lanes<Real> share = exp_of<Real>(load<Lanes<Real>>(logit) - log_sum);
      if constexpr (kMasked) share = sees(tile, limit, k) ? share : Lanes<Real>{};
      store<Real>(logit, share);
      store<Real>(grad, share * (load<Lanes<Real>>(grad) - delta));
    }
  }
}

/// Maps numbers to integers in the same order; 0 and -0 become equal.
template <class Real>
SHOAL_INLINE Index<Real> rank_of(const Lanes<Real>& x) {
  const auto bits = reinterpret_cast<Index<Real>>(x + Real(0));
  return bits ^ ((bits >> (8 * sizeof(Real) - 1)) & std::numeric_limits<Integer<Real>>::max());
}

/// The k-th highest rank of each query, found bit by bit from the sign down.
template <class Real>
SHOAL_INLINE Index<Real> kth_rank(const Integer<Real>* rank, const WholeLogits<Real>& tile,
                                  int64_t k) {
  constexpr Integer<Real> kLeast = std::numeric_limits<Integer<Real>>::min();
  Index<Real> found = Index<Real>{} + kLeast;
  for (int bit = 8 * sizeof(Real) - 1; bit >= 0; --bit) {
    const auto step = static_cast<Integer<Real>>(std::make_unsigned_t<Integer<Real>>(1) << bit);
    const Index<Real> tried = found ^ step;  // the sign's bit is set at first, the others are not
    Index<Real> fewer = Index<Real>{};       // minus the number of ranks that are as high
    for (int64_t key = 0; key < tile.keys; ++key) {
      fewer += load<Index<Real>>(rank + key * tile.queries) >= tried;
    }
    found = -fewer >= static_cast<Integer<Real>>(k) ? tried : found;
  }
  return found;
}

template <class Real>
SHOAL_INLINE bool are_all(const Index<Real>& mask) {
  Integer<Real> all = -1;
  for (int64_t lane = 0; lane < kLanes<Real>; ++lane) all &= mask[lane];
  return all != 0;
}

/// Searches a threshold that exactly k logits of each query reach. Returns false if a few tries do
/// not find it, as with ties around the k-th logit or infinite logits.
template <class Real>
SHOAL_INLINE bool find_threshold(const WholeLogits<Real>& tile, int64_t k, Lanes<Real>& threshold) {
  constexpr int kTries = 14;
  Lanes<Real> low = Lanes<Real>{} + kInfinity<Real>, high = -low;
  for (int64_t key = 0; key < tile.keys; ++key) {
    const auto x = load<Lanes<Real>>(tile.logit_KQ + key * tile.queries);
    low = (x < low) & (x > -kInfinity<Real>) ? x : low;  // of the keys that a query may attend to
    high = x > high ? x : high;
  }
  if (!are_all<Real>((high > low) & (high - low < kInfinity<Real>))) return false;
  // At least k logits reach `low`, at most k reach `high`. The next try is between: where a line
  // through both counts reaches k, and every third time in the middle.
  const auto wanted = static_cast<Integer<Real>>(k);
  Lanes<Real> above_low = Lanes<Real>{} + static_cast<Real>(tile.keys), above_high = Lanes<Real>{};
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const Lanes<Real> share = attempt % 3 == 2
                                  ? Lanes<Real>{} + Real(0.5)
                                  : (above_low - static_cast<Real>(k)) / (above_low - above_high);
    threshold = low + (high - low) * share;
    Index<Real> reached = Index<Real>{};
    for (int64_t key = 0; key < tile.keys; ++key) {
      reached -= load<Lanes<Real>>(tile.logit_KQ + key * tile.queries) >= threshold;
    }
    const auto count = __builtin_convertvector(reached, Lanes<Real>);
    if (are_all<Real>(reached == wanted)) return true;
    low = reached >= wanted ? threshold : low;  // both where it is found
    high = reached <= wanted ? threshold : high;
    above_low = reached > wanted ? count : above_low;
    above_high = reached < wanted ? count : above_high;
  }
  return false;
}

/// Sets logits that are not among their query's k highest to -inf.
template <class Real>
SHOAL_INLINE void keep_highest(const WholeLogits<Real>& tile, int64_t k, Integer<Real>* rank) {
  Real* logit = tile.logit_KQ;
  if (Lanes<Real> threshold; find_threshold<Real>(tile, k, threshold)) {
    for (int64_t key = 0; key < tile.keys; ++key) {
      Real* at = logit + key * tile.queries;
      const auto x = load<Lanes<Real>>(at);
      store<Real>(at, x >= threshold ? x : Lanes<Real>{} - kInfinity<Real>);
    }
    return;
  }
  for (int64_t key = 0; key < tile.keys; ++key) {
    const auto x = load<Lanes<Real>>(logit + key * tile.queries);
    const Index<Real> order = rank_of<Real>(x);
    __builtin_memcpy(rank + key * tile.queries, &order, sizeof order);
  }
  const Index<Real> last = kth_rank<Real>(rank, tile, k);
  Index<Real> room = Index<Real>{} + static_cast<Integer<Real>>(k);  // for ranks that equal it
  for (int64_t key = 0; key < tile.keys; ++key) {
    room += load<Index<Real>>(rank + key * tile.queries) > last;
  }
  for (int64_t key = 0; key < tile.keys; ++key) {
    Real* at = logit + key * tile.queries;
    const auto order = load<Index<Real>>(rank + key * tile.queries);
    const Index<Real> is_last = (order == last) & (room > 0);
    room += is_last;
    const auto x = load<Lanes<Real>>(at);
    store<Real>(at, ((order > last) | is_last) != 0 ? x : Lanes<Real>{} - kInfinity<Real>);
  }
}

template <class Real>
SHOAL_INLINE void softmax_lanes(const WholeLogits<Real>& tile, Real scale,
                                const Lanes<Real>& poison) {
  Lanes<Real> highest = Lanes<Real>{} - kInfinity<Real>, sum = poison;
  for (int64_t key = 0; key < tile.keys; ++key) {
    const auto x = load<Lanes<Real>>(tile.logit_KQ + key * tile.queries);
    highest = x > highest ? x : highest;
  }
  for (int64_t key = 0; key < tile.keys; ++key) {
    Real* at = tile.logit_KQ + key * tile.queries;
    const Lanes<Real> share = exp_of<Real>((load<Lanes<Real>>(at) - highest) * scale);
    store<Real>(at, share);
    sum += share;
  }
  const Lanes<Real> inverse = Real(1) / sum;
  for (int64_t key = 0; key < tile.keys; ++key) {
    Real* at = tile.logit_KQ + key * tile.queries;
    store<Real>(at, load<Lanes<Real>>(at) * inverse);
  }
}

}  // namespace

template <class Real>
SHOAL_CPU_CLONES void softmax_of_highest(const WholeLogits<Real>& tile, int64_t k, Real scale,
                                         Integer<Real>* rank_KQ) {
  for (int64_t q = 0; q < tile.queries; q += kLanes<Real>) {
    const WholeLogits<Real> lanes{tile.logit_KQ + q, tile.keys, tile.queries};
    Lanes<Real> poison = Lanes<Real>{};  // NaN where a logit is
    for (int64_t key = 0; key < tile.keys; ++key) {
      const auto x = load<Lanes<Real>>(lanes.logit_KQ + key * tile.queries);
      poison = x != x ? x : poison;
    }
    if (k < tile.keys) keep_highest<Real>(lanes, k, rank_KQ + q);
    softmax_lanes<Real>(lanes, scale, poison);
  }
}

template <class Real>
SHOAL_CPU_CLONES void differentiate_softmax(const WholeLogits<Real>& probability, Real factor,
                                            Real* grad_KQ, const OutputWeights<Real>* weights) {
  const int64_t queries = probability.queries;
  for (int64_t q = 0; q < queries; q += kLanes<Real>) {
    Lanes<Real> mean = Lanes<Real>{};
    for (int64_t key = 0; key < probability.keys; ++key) {
      const int64_t at = key * queries + q;
      mean += load<Lanes<Real>>(probability.logit_KQ + at) * load<Lanes<Real>>(grad_KQ + at);
    }
    Lanes<Real> weight = Lanes<Real>{} + Real(1);
    if (weights != nullptr) {
      weight = load<Lanes<Real>>(weights->weight_Q + q);
      store<Real>(weights->grad_Q + q, mean);
    }
    for (int64_t key = 0; key < probability.keys; ++key) {
      const int64_t at = key * queries + q;
      const Lanes<Real> share = load<Lanes<Real>>(probability.logit_KQ + at) * weight;
      store<Real>(probability.logit_KQ + at, share);
      store<Real>(grad_KQ + at, share * factor * (load<Lanes<Real>>(grad_KQ + at) - mean));
    }
  }
}

template <class Real>
void transpose_rows(const RowTransposition<Real>& x) {
  transpose_with(x, has_wide_registers());
}

template <class Real>
void multiply(const TileProduct<Real>& product) {
  (product.a_transposed ? multiply_oriented<true, Real>
                        : multiply_oriented<false, Real>)(product, has_wide_registers());
}

template <class Real>
SHOAL_CPU_CLONES void add_keys(const LogitTile<Real>& tile, const RunningSoftmax<Real>& softmax) {
  tile.is_masked ? add_keys_any<true>(tile, softmax) : add_keys_any<false>(tile, softmax);
}

template <class Real>
SHOAL_CPU_CLONES void differentiate_logits(const LogitTile<Real>& tile,
                                           const SavedSoftmax<Real>& saved, Real* grad_KQ) {
  tile.is_masked ? differentiate_any<true>(tile, saved, grad_KQ)
                 : differentiate_any<false>(tile, saved, grad_KQ);
}

#define SHOAL_ATTENTION_TILES(Real)                                                             \
  template void multiply(const TileProduct<Real>&);                                             \
  template void add_keys(const LogitTile<Real>&, const RunningSoftmax<Real>&);                  \
  template void differentiate_logits(const LogitTile<Real>&, const SavedSoftmax<Real>&, Real*); \
  template void softmax_of_highest(const WholeLogits<Real>&, int64_t, Real, Integer<Real>*);    \
  template void differentiate_softmax(const WholeLogits<Real>&, Real, Real*,                    \
                                      const OutputWeights<Real>*);                              \
  template void transpose_rows(const RowTransposition<Real>&);

SHOAL_ATTENTION_TILES(float)
SHOAL_ATTENTION_TILES(double)

#undef SHOAL_ATTENTION_TILES

}  // namespace shoal::attention_tiles
