#include "models/blocks/tile_kernels.h"

#include <algorithm>
#include <cmath>

#include "models/blocks/layer_norm.h"
#include "runtime/cpu_clones.h"

// The loops below are plain so that the compiler vectorises them, once for each instruction set.
#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")
#define SHOAL_INLINE inline __attribute__((always_inline))

namespace shoal {
namespace {

constexpr int64_t kLanes = 16;

template <class Real>
struct Lanes {
  Real lane[kLanes] = {};

  SHOAL_INLINE Real total() const {
    Real sum = 0;
    for (const Real value : lane) sum += value;
    return sum;
  }
};

/// Sum of term(c) over [0, columns).
template <class Real, class Term>
SHOAL_INLINE Real sum_over(int64_t columns, const Term& term) {
  Lanes<Real> lanes;
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    for (int64_t i = 0; i < kLanes; ++i) lanes.lane[i] += term(c + i);
  }
  for (int64_t i = 0; c < columns; ++c, ++i) lanes.lane[i] += term(c);
  return lanes.total();
}

template <class Real>
SHOAL_INLINE void normalise_row(const NormParameters<Real>& norm, const Real* __restrict__ x,
                                Real mean, Real rstd, Real* __restrict__ y) {
  const Real* __restrict__ weight = norm.weight_C;
  const Real* __restrict__ bias = norm.bias_C;
  for (int64_t c = 0; c < norm.columns; ++c) y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
}

template <class Real>
SHOAL_INLINE void normalise(const NormParameters<Real>& norm, const Real* x_RC, int64_t rows,
                            Real* y_RC, Real* mean_R, Real* rstd_R) {
  const int64_t columns = norm.columns;
  for (int64_t r = 0; r < rows; ++r) {
    const Real* x = x_RC + r * columns;
    const Real mean = sum_over<Real>(columns, [x](int64_t c) { return x[c]; }) / Real(columns);
    const Real square =
        sum_over<Real>(columns, [x, mean](int64_t c) { return (x[c] - mean) * (x[c] - mean); });
    mean_R[r] = mean;
    rstd_R[r] = Real(1) / std::sqrt(square / Real(columns) + Real(kLayerNormEps));
    normalise_row(norm, x, mean, rstd_R[r], y_RC + r * columns);
  }
}

template <class Real>
SHOAL_INLINE void renormalise(const NormParameters<Real>& norm, const Real* x_RC, int64_t rows,
                              const Real* mean_R, const Real* rstd_R, Real* y_RC) {
  for (int64_t r = 0; r < rows; ++r) {
    normalise_row(norm, x_RC + r * norm.columns, mean_R[r], rstd_R[r], y_RC + r * norm.columns);
  }
}

// With g = grad * weight and n = (x - mean) * rstd: dx = rstd * (g - mean(g) - n * mean(g n)).
template <class Real>
SHOAL_INLINE void normalise_row_backward(const NormParameters<Real>& norm,
                                         const NormGradient<Real>& tile, int64_t r) {
  const int64_t columns = norm.columns;
  const Real* x = tile.x_RC + r * columns;
  const Real* grad = tile.grad_RC + r * columns;
  const Real* residual = tile.residual_RC == nullptr ? nullptr : tile.residual_RC + r * columns;
  const Real* __restrict__ weight = norm.weight_C;
  Real* dx = tile.dx_RC + r * columns;
  Real* __restrict__ weight_grad = tile.weight_grad_C;
  Real* __restrict__ bias_grad = tile.bias_grad_C;
  const Real mean = tile.mean_R[r], rstd = tile.rstd_R[r];
  for (int64_t c = 0; c < columns; ++c) {
    weight_grad[c] += grad[c] * (x[c] - mean) * rstd;
    bias_grad[c] += grad[c];
  }
  const Real g_mean =
      sum_over<Real>(columns, [=](int64_t c) { return grad[c] * weight[c]; }) / Real(columns);
  const Real gn_mean =
      sum_over<Real>(columns,
                     [=](int64_t c) { return grad[c] * weight[c] * ((x[c] - mean) * rstd); }) /
      Real(columns);
  if (residual == nullptr) {
    for (int64_t c = 0; c < columns; ++c) {
      dx[c] = rstd * (grad[c] * weight[c] - g_mean - (x[c] - mean) * rstd * gn_mean);
    }
  } else {
    for (int64_t c = 0; c < columns; ++c) {
      dx[c] = residual[c] + rstd * (grad[c] * weight[c] - g_mean - (x[c] - mean) * rstd * gn_mean);
    }
  }
}

template <class Real>
SHOAL_INLINE void normalise_backward(const NormParameters<Real>& norm,
                                     const NormGradient<Real>& tile, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) normalise_row_backward(norm, tile, r);
}

template <class Real>
SHOAL_INLINE void row_bias(const Real* x_RC, const Real* bias_R, int64_t rows, int64_t columns,
                           Real* y_RC) {
  for (int64_t r = 0; r < rows; ++r) {
    const Real bias = bias_R[r];
    Real* y = y_RC + r * columns;
    if (x_RC == nullptr) {
      std::fill(y, y + columns, bias);
    } else {
      const Real* x = x_RC + r * columns;
      for (int64_t c = 0; c < columns; ++c) y[c] = x[c] + bias;
    }
  }
}

template <class Real>
SHOAL_INLINE void column_bias(const Real* x_RC, const Real* bias_C, int64_t rows, int64_t columns,
                              Real* y_RC) {
  for (int64_t r = 0; r < rows; ++r) {
    Real* y = y_RC + r * columns;
    if (x_RC == nullptr) {
      std::copy(bias_C, bias_C + columns, y);
    } else {
      const Real* x = x_RC + r * columns;
      for (int64_t c = 0; c < columns; ++c) y[c] = x[c] + bias_C[c];
    }
  }
}

template <class Real>
SHOAL_INLINE void row_sums(const Real* x_RC, int64_t rows, int64_t columns, Real* sum_R) {
  for (int64_t r = 0; r < rows; ++r) {
    const Real* x = x_RC + r * columns;
    sum_R[r] += sum_over<Real>(columns, [x](int64_t c) { return x[c]; });
  }
}

template <class Real>
SHOAL_INLINE void column_sums(const Real* x_RC, int64_t rows, int64_t columns, Real* sum_C) {
  for (int64_t r = 0; r < rows; ++r) {
    const Real* x = x_RC + r * columns;
    for (int64_t c = 0; c < columns; ++c) sum_C[c] += x[c];
  }
}

// Blocks keep both sides of the transposition in the first cache.
constexpr int64_t kBlock = 16;

/// put(r, c) for every element of the tile, block by block.
template <class Put>
SHOAL_INLINE void for_blocks(int64_t rows, int64_t columns, const Put& put) {
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    const int64_t r1 = std::min(rows, r0 + kBlock);
    for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
      const int64_t c1 = std::min(columns, c0 + kBlock);
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) put(r, c);
      }
    }
  }
}

}  // namespace

#define SHOAL_TILE_KERNELS(Real)                                                                \
  SHOAL_CPU_CLONES void normalise_rows(const NormParameters<Real>& norm, const Real* x_RC,      \
                                       int64_t rows, Real* y_RC, Real* mean_R, Real* rstd_R) {  \
    normalise(norm, x_RC, rows, y_RC, mean_R, rstd_R);                                          \
  }                                                                                             \
  SHOAL_CPU_CLONES void renormalise_rows(const NormParameters<Real>& norm, const Real* x_RC,    \
                                         int64_t rows, const Real* mean_R, const Real* rstd_R,  \
                                         Real* y_RC) {                                          \
    renormalise(norm, x_RC, rows, mean_R, rstd_R, y_RC);                                        \
  }                                                                                             \
  SHOAL_CPU_CLONES void normalise_rows_backward(const NormParameters<Real>& norm,               \
                                                const NormGradient<Real>& tile, int64_t rows) { \
    normalise_backward(norm, tile, rows);                                                       \
  }                                                                                             \
  SHOAL_CPU_CLONES void add_row_bias(const Real* x_RC, const Real* bias_R, int64_t rows,        \
                                     int64_t columns, Real* y_RC) {                             \
    row_bias(x_RC, bias_R, rows, columns, y_RC);                                                \
  }                                                                                             \
  SHOAL_CPU_CLONES void add_column_bias(const Real* x_RC, const Real* bias_C, int64_t rows,     \
                                        int64_t columns, Real* y_RC) {                          \
    column_bias(x_RC, bias_C, rows, columns, y_RC);                                             \
  }                                                                                             \
  SHOAL_CPU_CLONES void add_row_sums(const Real* x_RC, int64_t rows, int64_t columns,           \
                                     Real* sum_R) {                                             \
    row_sums(x_RC, rows, columns, sum_R);                                                       \
  }                                                                                             \
  SHOAL_CPU_CLONES void add_column_sums(const Real* x_RC, int64_t rows, int64_t columns,        \
                                        Real* sum_C) {                                          \
    column_sums(x_RC, rows, columns, sum_C);                                                    \
  }                                                                                             \
  void transpose_tile(const Real* x_RC, int64_t rows, int64_t columns, Real* y_CR) {            \
    for_blocks(columns, rows,                                                                   \
               [=](int64_t c, int64_t r) { y_CR[c * rows + r] = x_RC[r * columns + c]; });      \
  }                                                                                             \
  void add_transposed_tile(const Real* a_RC, const Real* b_CR, int64_t rows, int64_t columns,   \
                           Real* sum_RC) {                                                      \
    for_blocks(rows, columns, [=](int64_t r, int64_t c) {                                       \
      sum_RC[r * columns + c] = a_RC[r * columns + c] + b_CR[c * rows + r];                     \
    });                                                                                         \
  }

SHOAL_TILE_KERNELS(float)
SHOAL_TILE_KERNELS(double)

#undef SHOAL_TILE_KERNELS

}  // namespace shoal
