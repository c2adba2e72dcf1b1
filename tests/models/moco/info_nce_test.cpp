#include "models/moco/info_nce.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/gradient_check.h"
#include "tests/support/thread_communicator.h"

// b samples on this rank  B samples on all ranks  D features
namespace shoal {
namespace {

using testing::apart;
using testing::gradient_error;
using testing::run_ranks;
using testing::some_numbers;
using torch::Tensor;

constexpr double kRounding = 1e-12;

Tensor some_queries() {
  return torch::tensor({{1, 2, 2}, {0, 3, 4}, {2, -1, 2}, {-1, 1, 1}}, torch::kFloat64);
}
Tensor some_keys() {
  return torch::tensor({{2, 2, 1}, {0, 4, 3}, {1, 0, 2}, {-2, 1, 0}}, torch::kFloat64);
}

double published_loss(const Tensor& query_BD, const Tensor& key_BD, double temperature) {
  const Tensor sum = info_nce_sum(query_BD, {unit_rows(key_BD), 0}, temperature);
  return sum.item<double>() / static_cast<double>(query_BD.size(0));
}

// Values computed by hand from the formula, in float64.
TEST(InfoNce, OfFourPairsIsThePublishedLoss) {
  const Tensor q = some_queries(), k = some_keys();
  EXPECT_NEAR(published_loss(q, k, 1.0), 2.15078351, 1e-8);
  EXPECT_NEAR(published_loss(q, k, 1.0) + published_loss(k, q, 1.0), 4.28087448, 1e-8);
  EXPECT_NEAR(published_loss(q, k, 0.2), 0.24128051, 1e-8);
  EXPECT_NEAR(published_loss(q, k, 0.2) + published_loss(k, q, 0.2), 0.44063605, 1e-8);
}

TEST(InfoNce, GradientOfAQueryIsThatOfTheFormula) {
  const Tensor q = some_queries().requires_grad_();
  const Tensor loss = info_nce_sum(q, {unit_rows(some_keys()), 0}, 0.2) / 4;
  const Tensor gradient = torch::autograd::grad({loss}, {q})[0];
  const Tensor expected = torch::tensor({-0.05758613, -0.00877347, 0.03756654}, torch::kFloat64);
  EXPECT_LE(apart(gradient[0], expected), 1e-8);
  EXPECT_LE(gradient_error(
                [&] {
                  return info_nce_sum(q, {unit_rows(some_keys()), 0}, 0.2);
                },
                {q}),
            1e-6);
}

// Three ranks with one, no and three samples.
TEST(InfoNceRanks, IsTheSameForUnequalShares) {
  const Tensor q = some_queries(), k = some_keys();
  const std::vector<int64_t> begin{0, 1, 1, 4};
  std::vector<double> sums(3);
  run_ranks(3, [&](Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const int64_t first = begin[rank], count = begin[rank + 1] - first;
    const GatheredRows keys = gather_rows(unit_rows(k.narrow(0, first, count)), world);
    EXPECT_EQ(keys.first, first);
    EXPECT_TRUE(keys.rows.equal(unit_rows(k)));
    EXPECT_FALSE(keys.rows.requires_grad());
    sums[rank] = info_nce_sum(q.narrow(0, first, count), keys, 0.2).item<double>();
  });
  EXPECT_EQ(sums[1], 0.0);
  EXPECT_NEAR(sums[0] + sums[2], 4 * published_loss(q, k, 0.2), kRounding);
}

}  // namespace
}  // namespace shoal
