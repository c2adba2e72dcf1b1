#include "models/kernels/tile_kernels.h"

#include <cmath>

#include "runtime/device/cpu_clones.h"

// The loops below are plain so that the compiler vectorises them, once for each instruction set.
#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")

// Must come after the pragma.
#include "runtime/kernels/simd.h"

namespace shoal {
namespace {

constexpr int64_t kLanes = Simd<float>::kLanes;

template <class Real>
SHOAL_INLINE Real sum_of(const Real* x, int64_t columns) {
  Simd<Real> sum{};
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) sum.lanes += Simd<Real>::load(x + c).lanes;
  Real rest = 0;
  for (; c < columns; ++c) rest += x[c];
  return sum.total() + rest;
}

/// Sum of squares of x - mean.
template <class Real>
SHOAL_INLINE Real square_sum_of(const Real* x, Real mean, int64_t columns) {
  Simd<Real> sum{};
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    const auto centred = Simd<Real>::load(x + c).lanes - mean;
    sum.lanes += centred * centred;
  }
  Real rest = 0;
  for (; c < columns; ++c) rest += (x[c] - mean) * (x[c] - mean);
  return sum.total() + rest;
}

template <class Real>
SHOAL_INLINE void normalise_row(const NormParameters<Real>& norm, const Real* __restrict__ x,
                                Real mean, Real rstd, Real* __restrict__ y) {
  const Real* __restrict__ weight = norm.weight_C;
  const Real* __restrict__ bias = norm.bias_C;
  if (bias == nullptr) {
    for (int64_t c = 0; c < norm.columns; ++c) y[c] = (x[c] - mean) * rstd * weight[c];
  } else {
    for (int64_t c = 0; c < norm.columns; ++c) y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
  }
}

/// Means over a row of g and g n, where g = grad * weight, n = (x - mean) * rstd. Not a std::pair,
/// whose constructor is compiled without the options above and would not be inlined.
template <class Real>
struct GradientMeans {
  Real g, gn;
};

template <class Real>
SHOAL_INLINE GradientMeans<Real> gradient_means(const NormParameters<Real>& norm, const Real* x,
                                                const Real* grad, Real mean, Real rstd) {
  Simd<Real> g_sum{}, gn_sum{};
  int64_t c = 0;
  for (; c + kLanes <= norm.columns; c += kLanes) {
    const auto g = Simd<Real>::load(grad + c).lanes * Simd<Real>::load(norm.weight_C + c).lanes;
    g_sum.lanes += g;
    gn_sum.lanes += g * (Simd<Real>::load(x + c).lanes - mean);
  }
  Real g_rest = 0, gn_rest = 0;
  for (; c < norm.columns; ++c) {
    g_rest += grad[c] * norm.weight_C[c];
    gn_rest += grad[c] * norm.weight_C[c] * (x[c] - mean);
  }
  const Real share = Real(1) / Real(norm.columns);
  return {norm.is_centred ? (g_sum.total() + g_rest) * share : Real(0),
          (gn_sum.total() + gn_rest) * rstd * share};
}

// dx = rstd * (g - mean(g) - n * mean(g n)) + the residual's gradient; mean(g) only if centred.
template <bool kHasResidual, class Real>
SHOAL_INLINE void normalise_row_backward(const NormParameters<Real>& norm,
                                         const NormGradient<Real>& tile, int64_t r) {
  const int64_t columns = norm.columns;
  const Real* x = tile.x_RC + r * columns;
  const Real* grad = tile.grad_RC + r * columns;
  const Real* residual = kHasResidual ? tile.residual_RC + r * columns : nullptr;
  Real* dx = tile.dx_RC + r * columns;
  Real* __restrict__ weight_grad = tile.weight_grad_C;
  Real* __restrict__ bias_grad = tile.bias_grad_C;
  const Real* __restrict__ weight = norm.weight_C;
  const Real mean = tile.mean_R[r], rstd = tile.rstd_R[r];
  const auto [mean_g, mean_gn] = gradient_means(norm, x, grad, mean, rstd);
#pragma GCC ivdep
  for (int64_t c = 0; c < columns; ++c) {
    const Real n = (x[c] - mean) * rstd;
    weight_grad[c] += grad[c] * n;
    bias_grad[c] += grad[c];
    dx[c] = rstd * (grad[c] * weight[c] - mean_g - n * mean_gn);
    if constexpr (kHasResidual) dx[c] += residual[c];
  }
}

}  // namespace

template <class Real>
SHOAL_CPU_CLONES void normalise_rows(const NormParameters<Real>& norm, const Real* x_RC,
                                     int64_t rows, Real* y_RC,
                                     const RowStatistics<Real>& statistics) {
  const int64_t columns = norm.columns;
  const Real share = Real(1) / Real(columns);
  for (int64_t r = 0; r < rows; ++r) {
    const Real* x = x_RC + r * columns;
    const Real mean = norm.is_centred ? sum_of(x, columns) * share : Real(0);
    const Real variance = square_sum_of(x, mean, columns) * share;
    const Real rstd = Real(1) / std::sqrt(variance + norm.eps);
    statistics.mean_R[r] = mean;
    statistics.rstd_R[r] = rstd;
    normalise_row(norm, x, mean, rstd, y_RC + r * columns);
  }
}

template <class Real>
SHOAL_CPU_CLONES void normalise_rows_backward(const NormParameters<Real>& norm,
                                              const NormGradient<Real>& tile, int64_t rows) {
  if (tile.residual_RC != nullptr) {
    for (int64_t r = 0; r < rows; ++r) normalise_row_backward<true>(norm, tile, r);
  } else {
    for (int64_t r = 0; r < rows; ++r) normalise_row_backward<false>(norm, tile, r);
  }
}

template <class Real>
SHOAL_CPU_CLONES void add_row_sums(const Real* x_RC, int64_t rows, int64_t columns, Real* sum_R) {
  for (int64_t r = 0; r < rows; ++r) sum_R[r] += sum_of(x_RC + r * columns, columns);
}

#define SHOAL_TILE_KERNELS(Real)                                                                \
  template void normalise_rows(const NormParameters<Real>&, const Real*, int64_t, Real*,        \
                               const RowStatistics<Real>&);                                     \
  template void normalise_rows_backward(const NormParameters<Real>&, const NormGradient<Real>&, \
                                        int64_t);                                               \
  template void add_row_sums(const Real*, int64_t, int64_t, Real*);

SHOAL_TILE_KERNELS(float)
SHOAL_TILE_KERNELS(double)

#undef SHOAL_TILE_KERNELS

}  // namespace shoal
