#pragma once

#include <cstdint>

// R rows  C columns of a tile
namespace shoal {

/// What the layer norm of a row needs beside the row.
template <class Real>
struct NormParameters {
  const Real* weight_C;
  const Real* bias_C;
  int64_t columns;
};

/// Mean and 1 / sqrt(variance + eps) of each row of a tile. `Real` is const where they are read.
template <class Real>
struct RowStatistics {
  Real* mean_R;
  Real* rstd_R;
};

/// A tile of rows on its way back through a layer norm.
template <class Real>
struct NormGradient {
  const Real* x_RC;  ///< the norm's input
  const Real* mean_R;
  const Real* rstd_R;
  const Real* grad_RC;      ///< gradient of the norm's output
  const Real* residual_RC;  ///< added to dx; nullptr for none
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

/// y = layer norm of the rows of x with the statistics of an earlier call.
void renormalise_rows(const NormParameters<float>& norm, const float* x_RC, int64_t rows,
                      float* y_RC, const RowStatistics<const float>& statistics);
void renormalise_rows(const NormParameters<double>& norm, const double* x_RC, int64_t rows,
                      double* y_RC, const RowStatistics<const double>& statistics);

/// dx = gradient through the norm + residual.
void normalise_rows_backward(const NormParameters<float>& norm, const NormGradient<float>& tile,
                             int64_t rows);
void normalise_rows_backward(const NormParameters<double>& norm, const NormGradient<double>& tile,
                             int64_t rows);

/// y = x + bias, one bias a row or one a column. For rows x may be nullptr, which is zero.
void add_row_bias(const float* x_RC, const float* bias_R, int64_t rows, int64_t columns,
                  float* y_RC);
void add_row_bias(const double* x_RC, const double* bias_R, int64_t rows, int64_t columns,
                  double* y_RC);
void add_column_bias(const float* x_RC, const float* bias_C, int64_t rows, int64_t columns,
                     float* y_RC);
void add_column_bias(const double* x_RC, const double* bias_C, int64_t rows, int64_t columns,
                     double* y_RC);

/// Adds the sum of each row, or of each column, to `sum`.
void add_row_sums(const float* x_RC, int64_t rows, int64_t columns, float* sum_R);
void add_row_sums(const double* x_RC, int64_t rows, int64_t columns, double* sum_R);
void add_column_sums(const float* x_RC, int64_t rows, int64_t columns, float* sum_C);
void add_column_sums(const double* x_RC, int64_t rows, int64_t columns, double* sum_C);

/// y [columns, rows] = xᵀ.
void transpose_tile(const float* x_RC, int64_t rows, int64_t columns, float* y_CR);
void transpose_tile(const double* x_RC, int64_t rows, int64_t columns, double* y_CR);

/// sum = a + bᵀ, b [columns, rows].
void add_transposed_tile(const float* a_RC, const float* b_CR, int64_t rows, int64_t columns,
                         float* sum_RC);
void add_transposed_tile(const double* a_RC, const double* b_CR, int64_t rows, int64_t columns,
                         double* sum_RC);

}  // namespace shoal
