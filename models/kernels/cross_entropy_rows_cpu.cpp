#include "models/kernels/cross_entropy_rows.h"

#include <cmath>

#include "runtime/device/cpu_clones.h"

#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")
#include "runtime/kernels/vector_math.h"

// V vocabulary
namespace shoal {
namespace {

constexpr int64_t kLanes = 32;

template <class Real>
struct RowSum {
  Real highest, sum;
};

/// Computes exp(logit - highest), stored in place if `is_kept`, and returns the sum.
template <bool is_kept, class Real>
SHOAL_INLINE RowSum<Real> exps_of_row(Real* logits, int64_t vocabulary) {
  const int64_t whole = vocabulary - vocabulary % kLanes;
  Real highest[kLanes], sum[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    highest[lane] = logits[0];
    sum[lane] = Real(0);
  }
  for (int64_t v = 0; v < whole; v += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const Real logit = logits[v + lane];
      highest[lane] = logit > highest[lane] ? logit : highest[lane];
    }
  }
  for (int64_t v = whole; v < vocabulary; ++v) {
    highest[v - whole] = logits[v] > highest[v - whole] ? logits[v] : highest[v - whole];
  }
  Real top = highest[0];
  for (int64_t lane = 1; lane < kLanes; ++lane) top = highest[lane] > top ? highest[lane] : top;
  // 0 * logit: NaN where a logit is NaN or infinite, which exp_of would hide.
  for (int64_t v = 0; v < whole; v += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const Real logit = logits[v + lane];
      const Real exp = vector_math::exp_of(logit - top) + Real(0) * logit;
      sum[lane] += exp;
      if (is_kept) logits[v + lane] = exp;
    }
  }
  for (int64_t v = whole; v < vocabulary; ++v) {
    const Real logit = logits[v];
    const Real exp = vector_math::exp_of(logit - top) + Real(0) * logit;
    sum[v - whole] += exp;
    if (is_kept) logits[v] = exp;
  }
  Real total = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return {top, total};
}

template <class Real>
SHOAL_INLINE void scale_row(Real* exps, int64_t vocabulary, Real scale) {
  for (int64_t v = 0; v < vocabulary; ++v) exps[v] *= scale;
}

SHOAL_CPU_CLONES RowSum<float> sum_of_row(float* logits, int64_t vocabulary) {
  return exps_of_row<false>(logits, vocabulary);
}
SHOAL_CPU_CLONES RowSum<float> softmax_of_row(float* logits, int64_t vocabulary) {
  const RowSum<float> row = exps_of_row<true>(logits, vocabulary);
  scale_row(logits, vocabulary, 1.0f / row.sum);
  return row;
}
RowSum<double> sum_of_row(double* logits, int64_t vocabulary) {
  return exps_of_row<false>(logits, vocabulary);
}
RowSum<double> softmax_of_row(double* logits, int64_t vocabulary) {
  const RowSum<double> row = exps_of_row<true>(logits, vocabulary);
  scale_row(logits, vocabulary, 1.0 / row.sum);
  return row;
}

template <class Real>
double cross_entropy(Real* logits, int64_t vocabulary, int64_t label, bool is_differentiated) {
  const auto own = static_cast<double>(logits[label]);
  const RowSum<Real> row =
      is_differentiated ? softmax_of_row(logits, vocabulary) : sum_of_row(logits, vocabulary);
  if (is_differentiated) logits[label] -= Real(1);
  return std::log(static_cast<double>(row.sum)) + (static_cast<double>(row.highest) - own);
}

}  // namespace

double cross_entropy_row(float* logits_V, int64_t vocabulary, int64_t label,
                         bool is_differentiated) {
  return cross_entropy(logits_V, vocabulary, label, is_differentiated);
}

double cross_entropy_row(double* logits_V, int64_t vocabulary, int64_t label,
                         bool is_differentiated) {
  return cross_entropy(logits_V, vocabulary, label, is_differentiated);
}

}  // namespace shoal
