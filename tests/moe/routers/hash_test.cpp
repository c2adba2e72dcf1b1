#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/moe/routers/router_fixture.h"

// R rows per sample  U units
namespace shoal {
namespace {

using ::testing::ElementsAre;
using testing::problems_of;
using testing::router_of;
using testing::some_numbers;
using testing::step_of;
using testing::values;

constexpr int64_t kNumRows = 50, kNumUnits = 6;

Routing route_hashed(const std::string& recipe, const StepContext& step, uint64_t layer = 5) {
  auto router = router_of(recipe, {3, kNumUnits, torch::kFloat64});
  const torch::Tensor x = some_numbers({step.sample_b.size(0) * kNumRows, 3}, 2);
  return router->route(x, make_token_context(step, layer, kNumRows));
}

TEST(Hash, APositionHasTheSameDistinctUnitsInEverySampleAndStep) {
  StepContext step = step_of(3, 2), later = step_of(3, 2, false);
  later.step = 40;
  const torch::Tensor choice = route_hashed("{name: hash, k: 2}", step).choice_TK;
  EXPECT_TRUE(torch::equal(choice, route_hashed("{name: hash, k: 2}", later).choice_TK));
  EXPECT_TRUE(torch::equal(choice.slice(0, 0, kNumRows), choice.slice(0, kNumRows, 2 * kNumRows)));
  EXPECT_TRUE((choice.select(1, 0) != choice.select(1, 1)).all().item<bool>());
}

TEST(Hash, UsesAllUnitsAndDiffersByLayerAndSeed) {
  StepContext step = step_of(1, 1), other_seed = step_of(1, 1);
  other_seed.seed = 8;
  const torch::Tensor choice = route_hashed("{name: hash, k: 1}", step).choice_TK;
  const std::vector<int64_t> units = values(choice);
  EXPECT_EQ(std::set<int64_t>(units.begin(), units.end()).size(), static_cast<size_t>(kNumUnits));
  EXPECT_FALSE(torch::equal(choice, route_hashed("{name: hash, k: 1}", step, 6).choice_TK));
  EXPECT_FALSE(torch::equal(choice, route_hashed("{name: hash, k: 1}", other_seed).choice_TK));
}

TEST(Hash, WeighsItsUnitsAlike) {
  const Routing routing = route_hashed("{name: hash, k: 4}", step_of(2, 2));
  EXPECT_TRUE((routing.weight_TK == 0.25).all().item<bool>());
}

TEST(Hash, AVocabularyIdHasTheSameUnitsAnywhere) {
  StepContext step = step_of(2, 2);
  step.token_bS = torch::arange(2 * kNumRows, torch::kInt64).remainder(11).view({2, kNumRows});
  const torch::Tensor choice = route_hashed("{name: hash, k: 2, by: token}", step).choice_TK;
  for (int64_t t = 11; t < 2 * kNumRows; ++t) EXPECT_TRUE(choice[t].equal(choice[t - 11])) << t;
  EXPECT_TRUE(choice.equal(route_hashed("{name: hash, k: 2}", step).choice_TK));
  // By position the ids change nothing.
  const torch::Tensor by_position =
      route_hashed("{name: hash, k: 2, by: position}", step).choice_TK;
  EXPECT_TRUE(by_position.equal(route_hashed("{name: hash, k: 2}", step_of(2, 2)).choice_TK));
  EXPECT_FALSE(by_position.equal(choice));
}

TEST(Hash, APositionIsThatInTheTextWhereItIsKnown) {
  StepContext step = step_of(2, 2);
  const torch::Tensor row_R = torch::arange(kNumRows, torch::kInt64);
  step.position_bS = torch::stack({row_R, row_R + 3});
  const torch::Tensor choice = route_hashed("{name: hash}", step).choice_TK;
  EXPECT_TRUE(choice.slice(0, 3, kNumRows).equal(choice.slice(0, kNumRows, 2 * kNumRows - 3)));
}

TEST(Hash, RowsThatAreNoTokensHaveAPosition) {
  StepContext step = step_of(1, 1);
  step.token_bS = torch::zeros({1, kNumRows + 1}, torch::kInt64);
  EXPECT_TRUE(route_hashed("{name: hash}", step)
                  .choice_TK.equal(route_hashed("{name: hash}", step_of(1, 1)).choice_TK));
  EXPECT_THROW(route_hashed("{name: hash, by: token}", step), c10::Error);
  EXPECT_TRUE(
      router_of("{name: hash, by: token}", {3, kNumUnits, torch::kFloat64})->needs_token_ids());
}

TEST(Hash, HasNoParametersAndRefusesMoreUnitsThanThereAre) {
  EXPECT_TRUE(parameters_of(*router_of("{name: hash}", {3, kNumUnits, torch::kFloat64})).empty());
  EXPECT_THAT(problems_of("{name: hash, k: 7}", 6),
              ElementsAre("router.k: 7 units per token, but there are only 6"));
}

}  // namespace
}  // namespace shoal
