#pragma once

#include <algorithm>
#include <cstdint>

// R rows  C columns of a tile
namespace shoal {

/// Parameters of a layer norm or RMS norm over rows.
template <class Real>
struct NormParameters {
  const Real* weight_C;
  const Real* bias_C;  ///< null: no bias
  int64_t columns;
  Real eps;
  bool is_centred;  ///< false: RMS norm, the mean is not subtracted
};

/// Mean and 1 / sqrt(variance + eps) of each row of a tile.
template <class Real>
struct RowStatistics {
  Real* mean_R;
  Real* rstd_R;
};

/// Arrays of the backward pass of a norm on a tile of rows.
template <class Real>
struct NormGradient {
  const Real* x_RC;  ///< the norm's input
  const Real* mean_R;
  const Real* rstd_R;
  const Real* grad_RC;      ///< gradient of the norm's output
  const Real* residual_RC;  ///< added to dx; null: not added
  Real* dx_RC;
  Real* weight_grad_C;  ///< accumulated
  Real* bias_grad_C;    ///< accumulated
};

// Kernels on one tile of contiguous rows, one thread; float32 and float64. Sums over a row use 16
// lanes, reduced by halves, with equal bits on all instruction sets.

/// y = norm of each row of x; also writes the statistics.
template <class Real>
void normalise_rows(const NormParameters<Real>& norm, const Real* x_RC, int64_t rows, Real* y_RC,
                    const RowStatistics<Real>& statistics);

/// Input gradient of the norm; also accumulates the parameters' gradients.
template <class Real>
void normalise_rows_backward(const NormParameters<Real>& norm, const NormGradient<Real>& tile,
                             int64_t rows);

/// Adds the sum of each row to `sum`.
template <class Real>
void add_row_sums(const Real* x_RC, int64_t rows, int64_t columns, Real* sum_R);

/// Calls put(r, c) for every element of a tile, in blocks that fit into the first-level cache on
/// both sides of a transposition.
template <class Put>
void for_blocks(int64_t rows, int64_t columns, const Put& put) {
  constexpr int64_t kBlock = 16;
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

/// y [columns, rows] = xᵀ.
template <class Real>
void transpose_tile(const Real* x_RC, int64_t rows, int64_t columns, Real* y_CR) {
  for_blocks(columns, rows,
             [=](int64_t c, int64_t r) { y_CR[c * rows + r] = x_RC[r * columns + c]; });
}

}  // namespace shoal
