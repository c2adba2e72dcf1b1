#include "sparse/permutations/doubly_stochastic.h"

#include <gtest/gtest.h>

#include "tests/support/gradient_check.h"

namespace shoal {
namespace {

torch::Tensor doubles(const std::vector<double>& values, int64_t side) {
  return torch::tensor(values, torch::kFloat64).view({side, side});
}

TEST(DoublyStochastic, IsProjectedByColumnsThenRows) {
  const torch::Tensor m_ss = doubles({0.6, -0.2, 0.5, 0.3}, 2);
  DoublyStochastic().project(m_ss);
  EXPECT_LT(testing::apart(m_ss, doubles({1, 0, 0.3125, 0.6875}, 2)), 1e-12);
  EXPECT_LT(testing::apart(m_ss.sum(0), torch::tensor({1.3125, 0.6875}, torch::kFloat64)), 1e-12);
}

TEST(DoublyStochastic, KeepsRowsAndColumnsOfZeros) {
  const torch::Tensor m_ss = doubles({0, -1, 0, 2}, 2);
  DoublyStochastic().project(m_ss);
  EXPECT_LT(testing::apart(m_ss, doubles({0, 0, 0, 1}, 2)), 1e-12);
}

TEST(DoublyStochastic, PenaltyIsZeroOfPermutationsAndOneOfEqualEntries) {
  const torch::Tensor m_Gss =
      torch::stack({torch::eye(4, torch::kFloat64), torch::eye(4, torch::kFloat64).roll(1, 0),
                    torch::full({4, 4}, 0.25, torch::kFloat64)});
  const torch::Tensor penalty_G = DoublyStochastic().penalty(m_Gss);
  EXPECT_LT(testing::apart(penalty_G, torch::tensor({0.0, 0.0, 1.0}, torch::kFloat64)), 1e-12);
}

TEST(DoublyStochastic, PenaltyHasItsGradient) {
  const torch::Tensor m_Gss = testing::some_numbers({2, 5, 5}, 3).abs().add(0.01).requires_grad_();
  const auto penalty = [&] { return DoublyStochastic().penalty(m_Gss).sum(); };
  EXPECT_LT(testing::gradient_error(penalty, {m_Gss}), 1e-6);
  m_Gss.mutable_grad() = torch::Tensor();
  penalty().backward();
  EXPECT_LT(testing::apart(DoublyStochastic().penalty_gradient(m_Gss.detach()), m_Gss.grad()),
            1e-12);
  // Where a row and a column are zero the norms have no derivative: that of the L1 norms is left.
  const torch::Tensor zeros = torch::zeros({1, 2, 2}, torch::kFloat64);
  EXPECT_TRUE(DoublyStochastic().penalty_gradient(zeros).isfinite().all().item<bool>());
}

TEST(DoublyStochastic, BeginsBetweenTheIdentityAndChance) {
  const torch::Tensor m_ss = torch::empty({64, 64}, torch::kFloat64);
  DoublyStochastic().fill(m_ss, 0.5, {1, Purpose::kSparsePattern, 2, 0});
  EXPECT_LT(testing::apart(m_ss.sum(1), torch::ones({64}, torch::kFloat64)), 1e-12);
  EXPECT_LT(testing::apart(m_ss.sum(0), torch::ones({64}, torch::kFloat64)), 0.1);
  EXPECT_NEAR(m_ss.diagonal().mean().item<double>(), 0.5, 0.03);
  const double penalty = DoublyStochastic().penalty(m_ss).item<double>();
  EXPECT_GT(penalty, 0.3);
  EXPECT_LT(penalty, 0.7);
  EXPECT_TRUE((m_ss >= 0).all().item<bool>());
}

}  // namespace
}  // namespace shoal
