#pragma once

#include <cstdint>

// R rows  C columns of a tile
namespace shoal {

/// Parameters of the layer norm of a row.
template <class Real>
struct NormParameters {
  const Real* weight_C;
  const Real* bias_C;
  int64_t columns;
};

/// Mean and 1 / sqrt(variance + eps) of each row of a tile.
template <class Real>
struct RowStatistics {
  Real* mean_R;
  Real* rstd_R;
};

/// The backward pass of a layer norm on a tile of rows.
template <class Real>
struct NormGradient {
  const Real* x_RC;  ///< the norm's input
  const Real* mean_R;
  const Real* rstd_R;
  const Real* grad_RC;  ///< gradient of the norm's output
  Real* dx_RC;
  Real* weight_grad_C;  ///< added to
  Real* bias_grad_C;    ///< added to
};

// Kernels on one tile of contiguous rows, one thread; float32 and float64. Sums over a row are
// formed in 16 lanes that are then added half to half, whatever the instruction set.

/// y = layer norm of the rows of x. The statistics are written.
void normalise_rows(const NormParameters<float>& norm, const float* x_RC, int64_t rows, float* y_RC,
                    const RowStatistics<float>& statistics);
void normalise_rows(const NormParameters<double>& norm, const double* x_RC, int64_t rows,
                    double* y_RC, const RowStatistics<double>& statistics);

/// dx = gradient through the norm.
void normalise_rows_backward(const NormParameters<float>& norm, const NormGradient<float>& tile,
                             int64_t rows);
void normalise_rows_backward(const NormParameters<double>& norm, const NormGradient<double>& tile,
                             int64_t rows);

/// Fills row r with value[r].
void fill_rows(const float* value_R, int64_t rows, int64_t columns, float* y_RC);
void fill_rows(const double* value_R, int64_t rows, int64_t columns, double* y_RC);

/// Adds the sum of each row to `sum`.
void add_row_sums(const float* x_RC, int64_t rows, int64_t columns, float* sum_R);
void add_row_sums(const double* x_RC, int64_t rows, int64_t columns, double* sum_R);

/// y [columns, rows] = xᵀ.
void transpose_tile(const float* x_RC, int64_t rows, int64_t columns, float* y_CR);
void transpose_tile(const double* x_RC, int64_t rows, int64_t columns, double* y_CR);

/// sum = a + bᵀ, b [columns, rows].
void add_transposed_tile(const float* a_RC, const float* b_CR, int64_t rows, int64_t columns,
                         float* sum_RC);
void add_transposed_tile(const double* a_RC, const double* b_CR, int64_t rows, int64_t columns,
                         double* sum_RC);

}  // namespace shoal
