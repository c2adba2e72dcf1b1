#include "runtime/products/few_rows_product.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "tests/support/gradient_check.h"

// R rows  N columns  K summed
namespace shoal {
namespace {

using testing::some_numbers;

/// alpha x Wᵀ + beta y, each a part of longer rows.
torch::Tensor product_of(const torch::Tensor& x, const torch::Tensor& weight, torch::Tensor y,
                         float alpha, float beta) {
  multiply_few_rows({y.size(0), y.size(1), x.size(1), alpha, x.const_data_ptr<float>(), x.stride(0),
                     weight.const_data_ptr<float>(), weight.stride(0), beta, y.data_ptr<float>(),
                     y.stride(0)});
  return y;
}

TEST(FewRowsProduct, EqualsTheProductInFloat64) {
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{1, 1}, {7, 40}, {53, 301}, {3000, 200}}) {
    const torch::Tensor weight = some_numbers({N, K + 5}, 2, torch::kFloat32).narrow(1, 0, K);
    for (int64_t R = 0; R <= kFewRows; ++R) {
      const torch::Tensor x = some_numbers({R, K + 3}, 1, torch::kFloat32).narrow(1, 0, K);
      const torch::Tensor y = some_numbers({R, N + 2}, 3, torch::kFloat32).narrow(1, 0, N);
      const torch::Tensor product =
          at::matmul(x.to(torch::kFloat64), weight.to(torch::kFloat64).t());
      // Sums of K products of numbers about 1.
      const double tolerance = 1e-6 * static_cast<double>(K);
      const torch::Tensor expected = 0.5 * product + 2.0 * y;
      EXPECT_TRUE(at::allclose(product_of(x, weight, y.clone(), 0.5f, 2.0f).to(torch::kFloat64),
                               expected, tolerance, tolerance))
          << R << " " << N << " " << K;
      const torch::Tensor unset = torch::full({R, N}, std::numeric_limits<float>::quiet_NaN());
      EXPECT_TRUE(at::allclose(product_of(x, weight, unset, 1.0f, 0.0f).to(torch::kFloat64),
                               product, tolerance, tolerance))
          << R << " " << N << " " << K;
    }
  }
}

TEST(FewRowsProduct, ARowsBitsAreThoseOfTheRowAlone) {
  const torch::Tensor x = some_numbers({kFewRows, 301}, 1, torch::kFloat32);
  const torch::Tensor weight = some_numbers({53, 301}, 2, torch::kFloat32);
  const torch::Tensor y = product_of(x, weight, torch::empty({kFewRows, 53}), 1.0f, 0.0f);
  for (int64_t first = 0; first < kFewRows; ++first) {
    for (int64_t rows = 1; first + rows <= kFewRows; ++rows) {
      EXPECT_TRUE(at::equal(
          product_of(x.narrow(0, first, rows), weight, torch::empty({rows, 53}), 1.0f, 0.0f),
          y.narrow(0, first, rows)))
          << first << " " << rows;
    }
  }
}

}  // namespace
}  // namespace shoal
