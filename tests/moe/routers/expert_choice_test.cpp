#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moe/routing/capacity.h"
#include "tests/moe/routers/router_fixture.h"

// T tokens  U units
namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::identity_router;
using ::testing::IsEmpty;
using testing::problems_of;
using testing::route_all;
using testing::some_numbers;
using testing::step_of;
using testing::values;
using Ids = std::vector<int64_t>;

// R2: gates [[.5,.3,.2],[.6,.3,.1],[.4,.1,.5]], k 2, C = ceil(2 * 3 / 3) = 2. By columns: unit 0
// takes tokens 1 and 0, unit 1 tokens 0 and 1 (equal: the lower first), unit 2 tokens 2 and 0.
TEST(ExpertChoice, EveryUnitTakesItsBestTokens) {
  auto router = identity_router("{name: expert_choice, k: 2}", 3);
  const torch::Tensor gate =
      torch::tensor({{.5, .3, .2}, {.6, .3, .1}, {.4, .1, .5}}, torch::kFloat64);
  const Routing routing = route_all(*router, gate.log());
  EXPECT_EQ(values(routing.unit_TK), (Ids{0, 1, 2, 0, 1, -1, -1, -1, 2}));
  const TokenAssignments assignments = apply_capacity(routing, {});
  EXPECT_EQ(values(assignments.token_A), (Ids{0, 1, 0, 1, 0, 2}));
  EXPECT_EQ(values(assignments.rows_U), (Ids{2, 2, 2}));
  const torch::Tensor expected = torch::tensor({.5, .6, .3, .3, .2, .5}, torch::kFloat64);
  EXPECT_TRUE(torch::allclose(assignments.weight_A, expected, 1e-14));
}

// R2 on the gates of the capacity orders: unit 0 takes tokens 2 and 1, unit 1 tokens 0 and 1, unit
// 2 tokens 0 and 2.
TEST(ExpertChoice, TakesOthersThanTokensWouldChoose) {
  auto router = identity_router("{name: expert_choice, k: 2}", 3);
  const torch::Tensor gate =
      torch::tensor({{.5, .3, .2}, {.6, .3, .1}, {.7, .1, .2}}, torch::kFloat64);
  const Routing routing = route_all(*router, gate.log());
  EXPECT_EQ(values(routing.unit_TK), (Ids{-1, 1, 2, 0, 1, -1, 0, -1, 2}));
}

TEST(ExpertChoice, TiesGoToTheLowerToken) {
  auto router = identity_router("{name: expert_choice, k: 1}", 2);
  const Routing routing = route_all(*router, torch::zeros({4, 2}, torch::kFloat64));
  EXPECT_EQ(values(routing.unit_TK), (Ids{0, 1, 0, 1, -1, -1, -1, -1}));
}

TEST(ExpertChoice, TakesTheSameNumberInEveryGroupAndInEvaluation) {
  auto router = identity_router("{name: expert_choice, k: 2, factor: 1.3}", 4);
  // Groups of 3, 3 and 1 samples of 5 tokens: ceil(2 T 1.3 / 4) = 10, 10 and 4 of T = 15, 15, 5.
  const StepContext train = step_of(7, 3), evaluate = step_of(7, 3, false);
  const torch::Tensor x = some_numbers({35, 4}, 2);
  const Routing routing = router->route(x, make_token_context(train, 5, 5));
  EXPECT_TRUE(
      torch::equal(routing.unit_TK, router->route(x, make_token_context(evaluate, 5, 5)).unit_TK));
  const torch::Tensor chosen = routing.unit_TK >= 0;
  EXPECT_EQ(values(chosen.slice(0, 0, 15).sum(0)), (Ids{10, 10, 10, 10}));
  EXPECT_EQ(values(chosen.slice(0, 15, 30).sum(0)), (Ids{10, 10, 10, 10}));
  EXPECT_EQ(values(chosen.slice(0, 30, 35).sum(0)), (Ids{4, 4, 4, 4}));
}

TEST(ExpertChoice, AUnitTakesNoMoreThanThereAre) {
  auto router = identity_router("{name: expert_choice, k: 3, factor: 5}", 3);
  const Routing routing = route_all(*router, some_numbers({4, 3}, 2));
  EXPECT_TRUE((routing.unit_TK >= 0).all().item<bool>());
}

TEST(ExpertChoice, TakesNoTokens) {
  auto router = identity_router("{name: expert_choice}", 3);
  EXPECT_EQ(route_all(*router, torch::zeros({0, 3}, torch::kFloat64)).unit_TK.size(0), 0);
}

}  // namespace
}  // namespace shoal
