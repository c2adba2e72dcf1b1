#pragma once

#include <cstdint>

#include "runtime/device/bfloat16.h"
#include "runtime/kernels/bias_activation.h"

/// The loops of bias_activation on plain memory, for kernels that work on tiles. One thread;
/// float32, float64, and bfloat16, computed in float32; rows are contiguous.
namespace shoal {

/// y = act(x + bias) on [rows, columns]. The bias of row r, column c is bias[c] if
/// `bias_by_column`, else bias[r % num_bias]; nullptr, not by column, is none. With
/// `keep_derivative` the derivative goes to `derivative`, or over x if that is nullptr; without, x
/// is only read. y is other memory.
template <class Value>
struct ActivationRows {
  Value* x;
  Value* y;
  const Value* bias;
  int64_t columns, num_bias;
  bool bias_by_column, keep_derivative;
  Activation activation;
  Value* derivative = nullptr;
};

/// Rows [first, last).
void activate_rows(const ActivationRows<float>& rows, int64_t first, int64_t last);
void activate_rows(const ActivationRows<double>& rows, int64_t first, int64_t last);
void activate_rows(const ActivationRows<Bfloat16>& rows, int64_t first, int64_t last);

/// grad *= derivative on [rows, columns].
template <class Value>
struct ActivationGradientRows {
  Value* grad;
  const Value* derivative;
  int64_t columns, num_bias;
  bool bias_by_column;
};

/// Rows [first, last). Adds the products to `sum`, by column or, for one bias a row, to
/// sum[r % num_bias]; nullptr for no sums.
void activate_rows_backward(const ActivationGradientRows<float>& rows, int64_t first, int64_t last,
                            float* sum);
void activate_rows_backward(const ActivationGradientRows<double>& rows, int64_t first, int64_t last,
                            double* sum);
void activate_rows_backward(const ActivationGradientRows<Bfloat16>& rows, int64_t first,
                            int64_t last, float* sum);

}  // namespace shoal
