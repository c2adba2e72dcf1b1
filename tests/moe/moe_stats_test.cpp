#include "moe/moe_stats.h"

#include <gtest/gtest.h>

#include <cmath>

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

/// Of units with these loads, placed so.
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

TEST(MoeStats, AddsTheSumsOfMicroSteps) {
  MoeStats sum = stats_of({1, 2}, sums_of(3, 3, 3));
  sum.add(stats_of({4, 1}, sums_of(5, 5, 4)));
  EXPECT_TRUE(torch::equal(sum.sums, stats_of({5, 3}, sums_of(8, 8, 7)).sums));
  MoeStats other = stats_of({1, 2}, sums_of(3, 3, 3));
  other.layer = "blocks.2.moe_c";
  EXPECT_THROW(sum.add(other), c10::Error);
}

}  // namespace
}  // namespace shoal
