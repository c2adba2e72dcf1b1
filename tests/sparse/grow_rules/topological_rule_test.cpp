#include "sparse/grow_rules/topological_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "sparse/patterns/best_cells.h"
#include "tests/sparse/grow_rules/rule_fixture.h"
#include "tests/sparse/patterns/pattern_fixture.h"
#include "tests/support/config_error.h"

// C cells
namespace shoal {
namespace {

using testing::bools;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::make_pattern;
using testing::make_rule;
using testing::mask_of;
using testing::mistakes_of;

Stream stream_of(uint64_t number) {
  return {.seed = number, .purpose = Purpose::kSparsePattern, .layer = 7, .step = 100};
}

constexpr uint64_t kDraws = 10'000;

/// How often each pair of the cells is among the best two of `draw(number)`'s scores.
template <class Draw>
std::vector<double> pair_frequencies(int64_t cells, const Draw& draw) {
  std::vector<double> frequency(static_cast<size_t>(cells * cells));
  for (uint64_t number = 0; number < kDraws; ++number) {
    const torch::Tensor chosen = best_cells(draw(number), 2).nonzero().view({-1});
    const auto* cell = chosen.const_data_ptr<int64_t>();
    frequency[static_cast<size_t>(cell[0] * cells + cell[1])] += 1.0 / kDraws;
  }
  return frequency;
}

/// Probability that two draws without replacement take two cells of probabilities p and q.
double chance_of_pair(double p, double q) { return p * q / (1 - p) + q * p / (1 - q); }

/// Five standard deviations of a frequency among these draws, at most.
constexpr double kFiveDeviations = 5 * 0.5 / 100;

void expect_frequencies(const std::vector<double>& found, const std::vector<double>& chance) {
  const size_t cells = chance.size();
  for (size_t a = 0; a < cells; ++a) {
    for (size_t b = a + 1; b < cells; ++b) {
      EXPECT_NEAR(found[a * cells + b], chance_of_pair(chance[a], chance[b]), kFiveDeviations)
          << a << ", " << b;
    }
  }
}

TEST(RaceScores, DrawWithoutReplacementInProportionToTheWeights) {
  const torch::Tensor weight_C = torch::tensor({1.0, 2.0, 3.0, 4.0}, torch::kFloat64);
  const auto draw = [&](uint64_t number) {
    return race_scores(weight_C, stream_of(number), "test");
  };
  expect_frequencies(pair_frequencies(4, draw), {.1, .2, .3, .4});
}

TEST(RaceScores, CellsOfWeightZeroComeLastAndByChance) {
  const torch::Tensor weight_C = torch::tensor({0.0, 0.0, 1e-60, 0.0}, torch::kFloat64);
  const std::vector<double> found = pair_frequencies(
      4, [&](uint64_t number) { return race_scores(weight_C, stream_of(number), "test"); });
  EXPECT_NEAR(found[0 * 4 + 2], 1 / 3.0, kFiveDeviations);
  EXPECT_NEAR(found[1 * 4 + 2], 1 / 3.0, kFiveDeviations);
  EXPECT_NEAR(found[2 * 4 + 3], 1 / 3.0, kFiveDeviations);
}

TEST(RaceScores, DifferByPurposeAndAreFinite) {
  const torch::Tensor weight_C = torch::ones({1000}, torch::kFloat64);
  const torch::Tensor keep = race_scores(weight_C, stream_of(1), "keep");
  EXPECT_TRUE(torch::equal(keep, race_scores(weight_C, stream_of(1), "keep")));
  EXPECT_FALSE((keep == race_scores(weight_C, stream_of(1), "grow")).any().item<bool>());
  EXPECT_TRUE(keep.isfinite().all().item<bool>());
  EXPECT_TRUE((keep > 0).all().item<bool>());
}

/// The mask of LinkScores' graph by hand: of the missing links (0, 2) has the scores .5, 1, 1, 2
/// and (0, 3) 2.707, 7.182, 3.5, 9.
CellState graph_by_hand(uint64_t number = 1) {
  CellState cells;
  cells.is_on_C = cells.is_kept_C = mask_of({{1, 1, 0, 0}, {1, 0, 1, 1}, {1, 1, 0, 1}}).view({-1});
  cells.weight_C = cells.is_on_C.to(torch::kFloat32);
  cells.stream = stream_of(number);
  cells.rows = 3;
  cells.columns = 4;
  return cells;
}

TEST(Cht, GrowsByTheScoreThatItIsGiven) {
  const std::vector<std::pair<std::string, double>> scores{
      {"ch3_l3p", 2 + 1 / std::sqrt(2.0)},
      {"ch2_l3p", 3 + std::sqrt(3.0) + std::sqrt(6.0)},
      {"ch3_l3n", 3.5},
      {"ch2_l3n", 9.0}};
  for (const auto& [name, expected] : scores) {
    for (const char* rule : {"cht, ", "cht_s, selection: top, "}) {
      const auto made = make_rule("{name: " + (rule + ("score: " + name)) + "}");
      EXPECT_NEAR(made->grow_score(graph_by_hand())[3].item<double>(), expected, 1e-9) << name;
    }
  }
  EXPECT_NEAR(make_rule("{name: cht}")->grow_score(graph_by_hand())[3].item<double>(),
              scores[0].second, 1e-9);
}

// Links that were just dropped are missing like any other: (2, 3) has the path c0 r1.
TEST(Cht, ScoresTheMaskWithoutWhatWasDropped) {
  CellState cells = graph_by_hand();
  EXPECT_EQ(make_rule("{name: cht}")->grow_score(cells)[11].item<double>(), 0);
  cells.is_kept_C = cells.is_on_C.clone();
  cells.is_kept_C[11] = false;
  EXPECT_GT(make_rule("{name: cht}")->grow_score(cells)[11].item<double>(), 0);
}

TEST(Cht, DropsTheSmallestWeightsEveryEpochToTheEnd) {
  const auto rule = make_rule("{name: cht}");
  const CellTotals cells{.on = 40, .target = 40, .all = 100};
  EXPECT_TRUE(rule->is_due(10));
  EXPECT_FALSE(rule->is_due(15));
  EXPECT_TRUE(rule->is_due(990));
  EXPECT_EQ(rule->counts(10, cells).drop, 12);
  EXPECT_EQ(rule->counts(990, cells).drop, 12);
  EXPECT_TRUE(rule->removes_chains());
  EXPECT_EQ(rule->stop_overlap(), 0.9);
  EXPECT_EQ(make_rule("{name: cht, stop_overlap: never}")->stop_overlap(), std::nullopt);
  const CellState state = graph_by_hand();
  EXPECT_TRUE(torch::equal(rule->keep_score(state), state.weight_C.abs()));
}

// |w| of 1, 2, 3 and 4 at tau = 2.
TEST(ChtS, KeepsWithChancesByAPowerOfTheWeights) {
  const auto rule = make_rule("{name: cht_s, first_tau: 2, last_tau: 2}");
  CellState cells;
  cells.weight_C = torch::tensor({1.0, -2.0, 3.0, -4.0});
  const auto draw = [&](uint64_t number) {
    cells.stream = stream_of(number);
    return rule->keep_score(cells);
  };
  expect_frequencies(pair_frequencies(4, draw), {1 / 30.0, 4 / 30.0, 9 / 30.0, 16 / 30.0});
}

// tau is 1 at first and 9 at step 750: of |w| = 1 and 2 the second is kept with a chance of
// 2^tau / (1 + 2^tau), at step 375 with tau = 5.
TEST(ChtS, KeepsLargeWeightsMoreAndMoreSurely) {
  const auto rule = make_rule("{name: cht_s}");
  for (const auto& [step, tau] : {std::pair{0, 1.0}, {375, 5.0}, {749, 9.0}}) {
    CellState cells;
    cells.weight_C = torch::tensor({1.0, 2.0});
    double frequency = 0;
    for (uint64_t number = 0; number < kDraws; ++number) {
      cells.stream = {number, Purpose::kSparsePattern, 7, static_cast<uint64_t>(step)};
      const torch::Tensor score_C = rule->keep_score(cells);
      frequency += (score_C[1] > score_C[0]).item<bool>() ? 1.0 / kDraws : 0.0;
    }
    const double chance = std::exp2(tau) / (1 + std::exp2(tau));
    EXPECT_NEAR(frequency, chance, 5 * std::sqrt(chance * (1 - chance) / kDraws) + 1e-4) << step;
  }
}

// Of the missing links (0, 2), (0, 3), (1, 1) and (2, 2) two grow.
TEST(ChtS, GrowsWithChancesByTheScores) {
  const auto rule = make_rule("{name: cht_s, score: ch2_l3n}");
  const torch::Tensor score_C =
      make_rule("{name: cht, score: ch2_l3n}")->grow_score(graph_by_hand());
  const torch::Tensor chance_C = score_C / score_C.sum();
  std::vector<double> chance(chance_C.const_data_ptr<double>(),
                             chance_C.const_data_ptr<double>() + chance_C.numel());
  const auto draw = [&](uint64_t number) {
    const CellState cells = graph_by_hand(number);
    return rule->grow_score(cells).masked_fill(cells.is_kept_C, 0);
  };
  expect_frequencies(pair_frequencies(12, draw), chance);
}

TEST(ChtS, ReplacesATenthLessAndLess) {
  const auto rule = make_rule("{name: cht_s}");
  const CellTotals cells{.on = 1000, .target = 1000, .all = 10'000};
  EXPECT_TRUE(rule->is_due(100));
  EXPECT_FALSE(rule->is_due(150));
  EXPECT_EQ(rule->counts(375, cells).drop, 50);
  EXPECT_FALSE(rule->is_due(800));
  EXPECT_FALSE(rule->removes_chains());
  EXPECT_EQ(rule->stop_overlap(), std::nullopt);
}

TEST(TopologicalRules, RefusePatternsWhoseCellsAreNoFreeWeights) {
  for (const char* name : {"cht", "cht_s"}) {
    const auto rule = make_rule(std::string("{name: ") + name + "}");
    rule->check(*make_pattern("{name: unstructured}", 8, 8, 0.5), "fc");
    for (const char* pattern : {"block, size: 2", "n_m, of: 4", "constant_fan_in", "diagonal",
                                "shuffled_block, size: 2", "banded", "butterfly, grid: 4"}) {
      const auto made = make_pattern(std::string("{name: ") + pattern + "}", 8, 8, 0.75);
      EXPECT_THAT(mistakes_of([&] { rule->check(*made, "fc"); }),
                  ElementsAre(HasSubstr("fc: cht and cht_s grow single weights")))
          << pattern;
    }
  }
}

}  // namespace
}  // namespace shoal
