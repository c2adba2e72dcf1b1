#include "runtime/products/few_rows_product.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "runtime/device/cpu_clones.h"

#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")

// Must come after the pragma.
#include "runtime/kernels/simd.h"

// R rows  N columns  K summed
namespace shoal {
namespace {

constexpr int64_t kLanes = Simd<float>::kLanes;
/// Weights that a thread reads at least.
constexpr int64_t kThreadWeights = int64_t{1} << 18;

/// A tile of y, of the rows and columns from (r, n) on. Each of its sums is formed in 16 lanes of
/// its own, whatever the size of the tile.
template <int kRows, int kColumns>
SHOAL_INLINE void multiply_tile(const FewRowsProduct& p, int64_t r, int64_t n) {
  const float* x = p.x_RK + r * p.x_stride;
  const float* weight = p.weight_NK + n * p.weight_stride;
  // The next tile's weights are prefetched: with many rows a tile takes too long for the processor
  // to do it by itself.
  const float* next = weight + (n + 2 * kColumns <= p.columns ? kColumns * p.weight_stride : 0);
  Simd<float> sum[kRows * kColumns] = {};
  int64_t k = 0;
  for (; k + kLanes <= p.summed; k += kLanes) {
    Simd<float> w[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      w[j] = Simd<float>::load(weight + j * p.weight_stride + k);
      if (kRows >= 4) __builtin_prefetch(next + j * p.weight_stride + k);
    }
    for (int i = 0; i < kRows; ++i) {
      const auto row = Simd<float>::load(x + i * p.x_stride + k);
      for (int j = 0; j < kColumns; ++j) sum[i * kColumns + j].lanes += row.lanes * w[j].lanes;
    }
  }
  float totals[kRows * kColumns];
  int t = 0;
  for (; t + 8 <= kRows * kColumns; t += 8) total_eight(sum + t, totals + t);
  for (; t < kRows * kColumns; ++t) totals[t] = sum[t].total();
  for (int i = 0; i < kRows; ++i) {
    float* y = p.y_RN + (r + i) * p.y_stride + n;
    for (int j = 0; j < kColumns; ++j) {
      float sum_ij = totals[i * kColumns + j];
      for (int64_t l = k; l < p.summed; ++l) {
        sum_ij += x[i * p.x_stride + l] * weight[j * p.weight_stride + l];
      }
      y[j] = p.beta == 0 ? p.alpha * sum_ij : p.alpha * sum_ij + p.beta * y[j];
    }
  }
}

/// All rows of the columns [n, n + kColumns), which stay in the first cache.
template <int kColumns>
SHOAL_INLINE void multiply_columns(const FewRowsProduct& p, int64_t n) {
  int64_t r = 0;
  for (; r + 8 <= p.rows; r += 8) multiply_tile<8, kColumns>(p, r, n);
  for (; r + 4 <= p.rows; r += 4) multiply_tile<4, kColumns>(p, r, n);
  for (; r + 2 <= p.rows; r += 2) multiply_tile<2, kColumns>(p, r, n);
  for (; r < p.rows; ++r) multiply_tile<1, kColumns>(p, r, n);
}

// As many columns at once as registers have room for their sums; more where rows are few, since an
// addition waits for the one before it.
SHOAL_CPU_CLONES
void multiply_range(const FewRowsProduct& p, int64_t begin, int64_t end) {
  int64_t n = begin;
  if (p.rows < 4) {
    for (; n + 8 <= end; n += 8) multiply_columns<8>(p, n);
  }
  for (; n + 3 <= end; n += 3) multiply_columns<3>(p, n);
  for (; n < end; ++n) multiply_columns<1>(p, n);
}

}  // namespace

void multiply_few_rows(const FewRowsProduct& product) {
  const int64_t grain = std::max<int64_t>(1, kThreadWeights / std::max<int64_t>(1, product.summed));
  at::parallel_for(0, product.columns, grain,
                   [&](int64_t begin, int64_t end) { multiply_range(product, begin, end); });
}

}  // namespace shoal
