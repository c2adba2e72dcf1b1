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

TEST(Hash, HasNoParametersAndRefusesMoreUnitsThanThereAre) {
  EXPECT_TRUE(parameters_of(*router_of("{name: hash}", {3, kNumUnits, torch::kFloat64})).empty());
  EXPECT_THAT(problems_of("{name: hash, k: 7}", 6),
              ElementsAre("router.k: 7 units a token, but there are only 6"));
}

}  // namespace
}  // namespace shoal
