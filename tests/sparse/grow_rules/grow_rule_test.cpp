#include "sparse/grow_rules/grow_rule.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>

#include "runtime/base/error.h"
#include "tests/sparse/grow_rules/rule_fixture.h"
#include "tests/sparse/patterns/pattern_fixture.h"

namespace shoal {
namespace {

using testing::bools;
using testing::make_pattern;
using testing::make_rule;

static_assert(std::is_abstract_v<ReplaceRule>, "a new rule must say which cells it grows");

std::vector<double> cosine_fractions(const std::vector<int64_t>& steps) {
  const auto made = make_rule("{name: rigl, until: 1000step}");
  const auto& rule = dynamic_cast<const ReplaceRule&>(*made);
  std::vector<double> fractions;
  for (const int64_t step : steps) fractions.push_back(rule.fraction(step));
  return fractions;
}

TEST(GrowRules, ReplaceLessAndLessByACosine) {
  const std::vector<double> found = cosine_fractions({0, 250, 500, 750, 1000});
  const std::vector<double> expected{.3, .256066, .15, .043934, 0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
  const auto rule = make_rule("{name: rigl, until: 1000step}");
  const CellTotals cells{.on = 37, .target = 37, .all = 100};
  const std::vector<int64_t> steps{0, 250, 500, 750}, counts{11, 9, 5, 1};
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(rule->counts(steps[i], cells).drop, counts[i]);
    EXPECT_EQ(rule->counts(steps[i], cells).grow, counts[i]);
  }
}

TEST(GrowRules, TheTemperatureOfSoftTopKFallsByACosine) {
  const auto rule =
      make_rule("{name: soft_top_k, temperature: 5, last_temperature: 0.05, until: 400step}");
  const SoftChoice& choice = *rule->soft_choice();
  EXPECT_DOUBLE_EQ(choice.temperature(0), 5.0);
  EXPECT_DOUBLE_EQ(choice.temperature(200), 2.525);
  EXPECT_DOUBLE_EQ(choice.temperature(400), 0.05);
  EXPECT_DOUBLE_EQ(choice.temperature(1000), 0.05);
  EXPECT_EQ(make_rule("{name: rigl}")->soft_choice(), nullptr);
}

TEST(GrowRules, SoftTopKIsForCellsOfSeveralWeights) {
  const auto rule = make_rule("{name: soft_top_k}");
  for (const char* pattern : {"{name: diagonal}", "{name: block, size: 2}"}) {
    EXPECT_NO_THROW(rule->check(*make_pattern(pattern, 8, 8, 0.5), "fc")) << pattern;
  }
  for (const char* pattern : {"{name: unstructured}", "{name: n_m}", "{name: constant_fan_in}",
                              "{name: shuffled_block, size: 2}", "{name: banded}"}) {
    EXPECT_THROW(rule->check(*make_pattern(pattern, 8, 8, 0.5), "fc"), ConfigError) << pattern;
  }
}

TEST(GrowRules, AreDueUntilTheirEnd) {
  const auto rule = make_rule("{name: rigl, every: 100step, until: 75%}");
  EXPECT_FALSE(rule->is_due(0));
  EXPECT_FALSE(rule->is_due(99));
  EXPECT_TRUE(rule->is_due(100));
  EXPECT_TRUE(rule->is_due(700));
  EXPECT_FALSE(make_rule("{name: rigl, every: 100step, until: 700step}")->is_due(700));
  EXPECT_FALSE(rule->is_due(800));
  EXPECT_FALSE(make_rule("{name: static}")->is_due(100));
}

// w = (.10, .11, .5), g = (3, .5, 0): of the first two the gradient decides.
TEST(Mest, DropsByWeightAndGradient) {
  const CellState cells{.is_on_C = bools({1, 1, 1}),
                        .weight_C = torch::tensor({.10, -.11, .5}),
                        .gradient_C = torch::tensor({3.0, -.5, 0.0})};
  const auto dropped = [&](const std::string& recipe) {
    const auto rule = make_rule(recipe);
    const torch::Tensor score = rule->keep_score(cells);
    return prune({cells.is_on_C, score, score, 1, 0})
        .logical_not()
        .to(torch::kInt64)
        .argmax()
        .item<int64_t>();
  };
  EXPECT_EQ(dropped("{name: mest, lambda: 0.01}"), 1);
  EXPECT_EQ(dropped("{name: mest, lambda: 0}"), 0);
}

// Of 100 weights at density .1: 10 -> 8 -> 10, then 10 -> 9 -> 10, then nothing.
TEST(Mest, ElasticGoesBelowTheDensityAndBack) {
  const auto rule = make_rule("{name: mest, every: 50step}");
  const CellTotals cells{.on = 10, .target = 10, .all = 100};
  EXPECT_EQ(rule->counts(100, cells).drop, 2);
  EXPECT_EQ(rule->counts(100, cells).grow, 2);
  EXPECT_EQ(rule->counts(563, cells).drop, 1);
  EXPECT_TRUE(rule->is_due(700));
  EXPECT_FALSE(rule->is_due(750));
}

// 10 -> 12, 12 -> 10 -> 12, from 56.25 % on 12 -> 10 -> 11, at 75 % 11 -> 10.
TEST(Mest, SoftIsAboveTheDensityUntilItsEnd) {
  const auto rule = make_rule("{name: mest, mode: em_s, every: 50step}");
  const auto counts = [&](int64_t step, int64_t on) {
    const CellCounts found = rule->counts(step, {.on = on, .target = 10, .all = 100});
    return std::pair{found.drop, found.grow};
  };
  EXPECT_EQ(counts(50, 10), std::pair(int64_t{0}, int64_t{2}));
  EXPECT_EQ(counts(100, 12), std::pair(int64_t{2}, int64_t{2}));
  EXPECT_EQ(counts(600, 12), std::pair(int64_t{2}, int64_t{1}));
  EXPECT_TRUE(rule->is_due(750));
  EXPECT_EQ(counts(750, 11), std::pair(int64_t{1}, int64_t{0}));
}

TEST(GrowRules, DrawFromTheStreamOfTheMatrixAndStep) {
  CellState cells{.is_on_C = bools({1, 0, 0}), .weight_C = torch::tensor({1.0, 0.0, 0.0})};
  const auto rule = make_rule("{name: set}");
  cells.stream = {1, Purpose::kSparsePattern, 7, 100};
  const torch::Tensor score = rule->grow_score(cells);
  EXPECT_TRUE(torch::equal(score, rule->grow_score(cells)));
  cells.stream.step = 200;
  EXPECT_FALSE(torch::equal(score, rule->grow_score(cells)));
}

}  // namespace
}  // namespace shoal
