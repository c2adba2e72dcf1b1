#include "moe/kernels/logit_functions.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

using testing::gradient_error;
using testing::some_numbers;

TEST(RowSoftmax, EqualsTorchsSoftmax) {
  for (const int64_t rows : {0, 1, 31, 32, 33, 1000}) {
    for (const int64_t units : {1, 2, 5, 70}) {
      const torch::Tensor logits = some_numbers({rows, units}, 1) * 20;
      const torch::Tensor expected = logits.softmax(1);
      EXPECT_TRUE(torch::allclose(row_softmax(logits), expected, 1e-13, 1e-300));
      // Logits up to 20 are themselves rounded: 20 * 2^-24 in a score's own and in the highest.
      EXPECT_TRUE(torch::allclose(row_softmax(logits.to(torch::kFloat32)).to(torch::kFloat64),
                                  expected, 4e-6, 1e-37));
    }
  }
}

TEST(RowSoftmax, GradientsAreThoseOfFiniteDifferences) {
  torch::Tensor logits = some_numbers({35, 4}, 2).set_requires_grad(true);
  EXPECT_LT(gradient_error([&] { return row_softmax(logits); }, {logits}), 1e-7);
}

TEST(RowSoftmax, LargeLogitsDoNotOverflow) {
  const torch::Tensor gate = row_softmax(torch::tensor({{1e30f, 0.0f}, {-1e30f, -1e30f}}));
  // exp stops at e^-87 in float32.
  EXPECT_TRUE(torch::allclose(gate[0], torch::tensor({1.0f, 0.0f}), 0, 2e-38));
  EXPECT_TRUE(torch::equal(gate[1], torch::tensor({0.5f, 0.5f})));
}

TEST(RowSoftmax, LogitsWhoseDifferenceOverflowsStayNumbers) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const double large = dtype == torch::kFloat32 ? 3.3e38 : 1.7e308;
    torch::Tensor logits = torch::tensor({{large, -large, 0.0}, {-large, large, large}}, dtype)
                               .set_requires_grad(true);
    const torch::Tensor gate = row_softmax(logits);
    EXPECT_TRUE(torch::allclose(gate, logits.softmax(1), 0, 2e-38)) << gate;
    gate.select(1, 0).sum().backward();
    EXPECT_TRUE(torch::allclose(logits.grad(), torch::zeros({2, 3}, dtype), 0, 2e-38));
  }
}

TEST(RowSoftmax, RowsWithALogitThatIsNotFiniteBecomeNan) {
  const float nan = std::nanf("");
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const torch::Tensor logits =
        torch::tensor({{nan, 0.f}, {0.f, nan}, {INFINITY, 0.f}, {0.f, -INFINITY}, {0.f, 0.f}})
            .to(dtype);
    const torch::Tensor gate = row_softmax(logits);
    EXPECT_TRUE(gate.narrow(0, 0, 4).isnan().all().item<bool>());
    EXPECT_TRUE(torch::equal(gate[4], torch::full({2}, 0.5, dtype)));
  }
}

}  // namespace
}  // namespace shoal
