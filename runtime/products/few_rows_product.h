#pragma once

#include <cstdint>

// R rows  N columns  K summed
namespace shoal {

/// y [R, N] = alpha x [R, K] (W [N, K])ᵀ + beta y, row-major; rows are `…_stride` elements apart.
struct FewRowsProduct {
  int64_t rows, columns, summed;
  float alpha;
  const float* x_RK;
  int64_t x_stride;
  const float* weight_NK;
  int64_t weight_stride;
  float beta;  ///< 0: y need not be initialised
  float* y_RN;
  int64_t y_stride;
};

/// multiply_few_rows is fastest for at most kFewRows rows with at least kManySummed summed.
inline constexpr int64_t kFewRows = 16, kManySummed = 256;

/// A product of few rows, as in decoding: reads W once, while libraries first copy it into another
/// layout. The bits of a row of y are independent of the other rows and their number.
void multiply_few_rows(const FewRowsProduct& product);

}  // namespace shoal
