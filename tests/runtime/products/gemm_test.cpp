#include "runtime/products/gemm.h"

#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::some_numbers;

template <class Real>
void expect_products(int64_t m, int64_t n, int64_t k, double tolerance) {
  const auto options = torch::TensorOptions().dtype(c10::CppTypeToScalarType<Real>::value);
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const Real beta : {Real(0), Real(1)}) {
        // Each factor is the left part of rows that are longer by three.
        const torch::Tensor a = some_numbers(
            a_transposed ? at::IntArrayRef{k, m + 3} : at::IntArrayRef{m, k + 3}, 1, options);
        const torch::Tensor b = some_numbers(
            b_transposed ? at::IntArrayRef{n, k + 3} : at::IntArrayRef{k, n + 3}, 2, options);
        torch::Tensor c = some_numbers({m, n + 3}, 3, options);
        const torch::Tensor left = a_transposed ? a.narrow(1, 0, m).t() : a.narrow(1, 0, k);
        const torch::Tensor right = b_transposed ? b.narrow(1, 0, k).t() : b.narrow(1, 0, n);
        torch::Tensor expected = c.clone();
        expected.narrow(1, 0, n).mul_(beta).add_(
            at::matmul(left.to(torch::kFloat64), right.to(torch::kFloat64)));
        gemm(m, n, k, {a.data_ptr<Real>(), a.size(1), a_transposed},
             {b.data_ptr<Real>(), b.size(1), b_transposed}, beta, c.data_ptr<Real>(), n + 3);
        EXPECT_LT((c - expected).abs().max().template item<double>(), tolerance);
      }
    }
  }
}

TEST(Gemm, MultipliesEveryLayoutOfItsFactors) {
  expect_products<float>(5, 7, 4, 1e-6);
  expect_products<double>(5, 7, 4, 1e-14);
  expect_products<float>(130, 70, 300, 1e-4);
  expect_products<float>(1, 300, 70, 1e-5);
}

TEST(Gemm, AnEmptySumIsZeroOrLeavesTheResult) {
  const double a = 1, b = 1;
  double c = 5;
  gemm(1, 1, 0, Factor<double>{&a, 1}, Factor<double>{&b, 1}, 1.0, &c, 1);
  EXPECT_EQ(c, 5);
  gemm(1, 1, 0, Factor<double>{&a, 1}, Factor<double>{&b, 1}, 0.0, &c, 1);
  EXPECT_EQ(c, 0);
  gemm(0, 1, 1, Factor<double>{&a, 1}, Factor<double>{&b, 1}, 0.0, &c, 1);
  EXPECT_EQ(c, 0);
}

}  // namespace
}  // namespace shoal
