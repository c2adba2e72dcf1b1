#include "moe/moe_stats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/device/flush_denormals.h"
#include "tests/support/gradient_check.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

torch::Tensor row(const std::vector<double>& values) {
  return torch::tensor(values, torch::kFloat64);
}

MoeStats stats_of(const std::vector<double>& load_U, StatSums sums,
                  const std::vector<std::string>& loss_names = {}) {
  sums.load_U = row(load_U);
  const auto num_units = static_cast<int64_t>(load_U.size());
  return make_stats("blocks.1.moe_c", UnitPlacement::contiguous(num_units, 1), sums, loss_names);
}

StatSums sums_of(int64_t tokens, int64_t choices, int64_t kept) {
  StatSums sums;
  sums.tokens = tokens;
  sums.choices = choices;
  sums.kept = torch::tensor(kept);
  return sums;
}

/// Overload of the ranks for units with these loads, placed so.
std::vector<double> rank_overload(const std::vector<double>& load_U,
                                  const UnitPlacement& placement) {
  StatSums sums = sums_of(1, 1, 1);
  sums.load_U = row(load_U);
  return report(make_stats("layer", placement, sums)).rank_overload_E;
}

TEST(MoeStats, ReportsLoadEntropyDeadUnitsAndDrops) {
  StatSums sums = sums_of(/*tokens=*/5, /*choices=*/10, /*kept=*/7);
  sums.unrouted = torch::tensor(int64_t{2});
  sums.entropy = torch::tensor(5 * std::log(2.0), torch::kFloat64);
  sums.losses = {torch::tensor(1.5f)};
  const MoeReport result = report(stats_of({6, 2, 0, 0}, sums, {"importance"}));
  EXPECT_EQ(result.layer, "blocks.1.moe_c");
  EXPECT_EQ(result.load_U, (std::vector<int64_t>{6, 2, 0, 0}));
  EXPECT_EQ(result.load_min, 0.0);
  EXPECT_EQ(result.load_max, 6.0);
  EXPECT_EQ(result.load_mean, 2.0);
  EXPECT_NEAR(result.load_cv, std::sqrt(6.0) / 2.0, 1e-15);
  EXPECT_NEAR(result.load_entropy, -(0.75 * std::log(0.75) + 0.25 * std::log(0.25)) / std::log(4.0),
              1e-15);
  EXPECT_NEAR(result.router_entropy, 0.5, 1e-15);
  EXPECT_EQ(result.dead_units, 2);
  EXPECT_NEAR(result.dropped, 0.3, 1e-15);
  EXPECT_NEAR(result.unrouted, 0.4, 1e-15);
  EXPECT_EQ(result.tokens, 5);
  ASSERT_EQ(result.losses.size(), 1u);
  EXPECT_EQ(result.losses[0].first, "importance");
  EXPECT_NEAR(result.losses[0].second, 0.3, 1e-15);
}

TEST(MoeStats, LossesAreMeansOverItemsWhereTheseAreNotTokens) {
  StatSums sums = sums_of(/*tokens=*/5, /*choices=*/5, /*kept=*/5);
  sums.losses = {torch::tensor(1.5f)};
  sums.items = 2;
  EXPECT_EQ(report(stats_of({3, 2}, sums, {"importance"})).losses[0].second, 0.75);
}

TEST(MoeStats, EvenLoadHasEntropyOneAndNoVariation) {
  const MoeReport result = report(stats_of({3, 3, 3}, sums_of(9, 9, 9)));
  EXPECT_NEAR(result.load_entropy, 1.0, 1e-15);
  EXPECT_EQ(result.load_cv, 0.0);
  EXPECT_EQ(result.dead_units, 0);
}

TEST(MoeStats, NothingSeenGivesZeros) {
  StatSums sums;
  sums.losses = {torch::zeros({})};
  const MoeReport result = report(stats_of({0, 0}, sums, {"load"}));
  EXPECT_EQ(result.load_cv, 0.0);
  EXPECT_EQ(result.load_entropy, 0.0);
  EXPECT_EQ(result.router_entropy, 0.0);
  EXPECT_EQ(result.dropped, 0.0);
  EXPECT_EQ(result.unrouted, 0.0);
  EXPECT_EQ(result.losses[0].second, 0.0);
}

TEST(MoeStats, OneUnitIsNoReasonToDivideByZero) {
  const MoeReport result = report(stats_of({4}, sums_of(4, 4, 4)));
  EXPECT_EQ(result.load_entropy, 0.0);
  EXPECT_EQ(result.router_entropy, 0.0);
}

TEST(MoeStats, OverloadOfARankIsItsLoadOverTheMeanOfTheRanks) {
  // Three units on the first rank, two on the second: 9 and 3 choices, 6 in the mean.
  EXPECT_EQ(rank_overload({6, 2, 1, 0, 3}, UnitPlacement::contiguous(5, 2)),
            (std::vector<double>{1.5, 0.5}));
  // The same loads, not in order of rank: 2 + 3 and 6 + 1 + 0, and a rank without units.
  EXPECT_EQ(rank_overload({6, 2, 1, 0, 3}, UnitPlacement({1, 0, 1, 1, 0}, 3)),
            (std::vector<double>{1.25, 1.75, 0.0}));
  EXPECT_EQ(rank_overload({4, 1}, UnitPlacement::contiguous(2, 1)), std::vector<double>{1.0});
  EXPECT_EQ(rank_overload({0, 0}, UnitPlacement::contiguous(2, 2)), (std::vector<double>{0, 0}));
}

/// Statistics of tokens with these scores, each routed to the first unit.
MoeStats scored(const torch::Tensor& prob_TU, double multiply_adds = 0) {
  StatSums sums;
  sums.tokens = sums.choices = prob_TU.size(0);
  sums.entropy = entropy_sum(prob_TU);
  sums.score_U = prob_TU.sum(0, false, torch::kFloat64);
  sums.multiply_adds = multiply_adds;
  std::vector<double> load_U(static_cast<size_t>(prob_TU.size(1)), 0.0);
  load_U[0] = static_cast<double>(prob_TU.size(0));
  return stats_of(load_U, sums);
}

double binary_entropy(double p) { return -p * std::log(p) - (1 - p) * std::log(1 - p); }

TEST(MoeStats, MutualInformationIsZeroOfEqualTokensAndLnUOfCertainOnes) {
  const auto of = [](const torch::Tensor& prob_TU) {
    return report(scored(prob_TU)).mutual_information.value();
  };
  EXPECT_NEAR(of(torch::full({7, 5}, 0.2, torch::kFloat64)), 0.0, 1e-15);
  EXPECT_NEAR(of(row({0.7, 0.2, 0.1}).expand({9, 3})), 0.0, 1e-15);
  EXPECT_NEAR(of(torch::eye(4, torch::kFloat64).repeat({3, 1})), std::log(4.0), 1e-15);
  EXPECT_EQ(of(torch::ones({3, 1}, torch::kFloat64)), 0.0);
}

// As `shoal` computes on CPUs: no bound may be a denormal itself.
TEST(MoeStats, EntropyOfCertainTokensIsZeroWithDenormalsFlushed) {
  flush_denormals();
  const double float32 = entropy_sum(torch::eye(64)).item<double>();
  const double float64 = entropy_sum(torch::eye(64, torch::kFloat64)).item<double>();
  flush_denormals(false);
  EXPECT_EQ(float32, 0.0);
  EXPECT_EQ(float64, 0.0);
}

TEST(MoeStats, MutualInformationOfAHandWorkedCase) {
  // A token whose scores underflow does not count.
  const torch::Tensor prob_TU = row({0.9, 0.1, 0.2, 0.8, 0.0, 0.0}).view({3, 2});
  const MoeReport result = report(scored(prob_TU));
  EXPECT_NEAR(result.mutual_information.value(),
              binary_entropy(0.55) - (binary_entropy(0.9) + binary_entropy(0.2)) / 2, 1e-15);
  ASSERT_EQ(result.mean_score_U.size(), 2u);
  EXPECT_NEAR(result.mean_score_U[0], 0.55, 1e-15);
  EXPECT_NEAR(result.mean_score_U[1], 0.45, 1e-15);
}

TEST(MoeStats, WithoutScoresOrTokensThereIsNoMutualInformation) {
  const MoeReport unscored = report(stats_of({4, 2}, sums_of(6, 6, 6)));
  EXPECT_FALSE(unscored.mutual_information.has_value());
  EXPECT_TRUE(unscored.mean_score_U.empty());
  const MoeReport empty = report(scored(torch::zeros({0, 3}, torch::kFloat64)));
  EXPECT_FALSE(empty.mutual_information.has_value());
  EXPECT_EQ(empty.mean_score_U, (std::vector<double>{0, 0, 0}));
}

TEST(MoeStats, MultiplyAddsAreThoseOfATokenWhereTheyAreCounted) {
  const torch::Tensor prob_TU = torch::full({4, 2}, 0.5, torch::kFloat64);
  EXPECT_EQ(report(scored(prob_TU, 12.0)).multiply_adds, 3.0);
  EXPECT_FALSE(report(scored(prob_TU)).multiply_adds.has_value());
}

TEST(MoeStats, AddsTheSumsOfMicroSteps) {
  MoeStats sum = stats_of({1, 2}, sums_of(3, 3, 3));
  sum.add(stats_of({4, 1}, sums_of(5, 5, 4)));
  EXPECT_TRUE(torch::equal(sum.sums, stats_of({5, 3}, sums_of(8, 8, 7)).sums));
  MoeStats other = stats_of({1, 2}, sums_of(3, 3, 3));
  other.layer = "blocks.2.moe_c";
  EXPECT_THROW(sum.add(other), c10::Error);
  EXPECT_THROW(sum.add(scored(torch::ones({1, 2}))), c10::Error);
}

TEST(MoeStats, AddsPassesLayerByLayerWithoutTheirFirstUnits) {
  std::vector<MoeStats> pass{stats_of({1, 2}, sums_of(3, 3, 3)), scored(torch::ones({2, 1}))};
  pass[0].first_unit_T = torch::zeros({3}, torch::kInt64);
  std::vector<MoeStats> total;
  add(total, pass);
  add(total, pass);
  ASSERT_EQ(total.size(), 2u);
  EXPECT_TRUE(torch::equal(total[0].sums, 2 * pass[0].sums));
  EXPECT_TRUE(torch::equal(total[1].sums, 2 * pass[1].sums));
  EXPECT_FALSE(total[0].first_unit_T.defined());
  pass.pop_back();
  EXPECT_THROW(add(total, pass), c10::Error);
}

TEST(MoeStatsRanks, ReducedStatisticsAreThoseOfAllTokens) {
  // The last rank has no tokens.
  const torch::Tensor prob_TU =
      torch::softmax(testing::some_numbers({11, 3}, 5, torch::kFloat64) * 3, 1);
  const MoeReport expected = report(scored(prob_TU, 33.0));
  testing::run_ranks(3, [&](Communicator& comm) {
    const std::vector<int64_t> sizes{4, 7, 0};
    const torch::Tensor own_TU = prob_TU.split_with_sizes(sizes)[static_cast<size_t>(comm.rank())];
    const auto [numbers, layers] =
        reduce(torch::full({2}, 1.5, torch::kFloat64),
               {scored(own_TU, 3.0 * static_cast<double>(own_TU.size(0))), scored(own_TU)}, comm);
    EXPECT_TRUE(torch::equal(numbers, torch::full({2}, 4.5, torch::kFloat64)));
    ASSERT_EQ(layers.size(), 2u);
    EXPECT_EQ(layers[0].multiply_adds, 3.0);
    EXPECT_FALSE(layers[1].multiply_adds.has_value());
    for (const MoeReport& layer : layers) {
      EXPECT_EQ(layer.tokens, 11);
      EXPECT_NEAR(layer.mutual_information.value(), expected.mutual_information.value(), 1e-14);
      for (size_t u = 0; u < 3; ++u) {
        EXPECT_NEAR(layer.mean_score_U[u], expected.mean_score_U[u], 1e-15);
      }
    }
  });
}

}  // namespace
}  // namespace shoal
