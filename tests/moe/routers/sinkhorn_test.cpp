#include <gtest/gtest.h>

#include <cmath>

#include "tests/moe/routers/router_fixture.h"

// T tokens  U units
namespace shoal {
namespace {

using testing::identity_router;
using testing::route_all;
using testing::some_numbers;
using testing::step_of;
using testing::values;
using Ids = std::vector<int64_t>;

/// Rounds of dividing rows, then columns, by their sums; then the best k of each row.
std::vector<Ids> by_loops(const torch::Tensor& logits_TU, int64_t k, int rounds) {
  torch::Tensor scaled = logits_TU.exp();
  for (int i = 0; i < rounds; ++i) {
    scaled = scaled / scaled.sum(1, true);
    scaled = scaled / scaled.sum(0, true);
  }
  std::vector<Ids> choices;
  for (int64_t t = 0; t < logits_TU.size(0); ++t) {
    choices.push_back(values(std::get<1>(scaled[t].sort(/*stable=*/true, 0, true)).slice(0, 0, k)));
  }
  return choices;
}

TEST(Sinkhorn, ChoosesFromScoresWithEvenRowsAndColumns) {
  auto router = identity_router("{name: sinkhorn, k: 2}", 5);
  // So uneven that rounds go on changing choices: one more or less is told apart.
  const torch::Tensor x = some_numbers({400, 5}, 3) * 6 + torch::arange(5, torch::kFloat64) * 3;
  const Routing routing = route_all(*router, x);
  std::vector<Ids> chosen;
  for (int64_t t = 0; t < x.size(0); ++t) chosen.push_back(values(routing.choice_TK[t]));
  EXPECT_EQ(chosen, by_loops(x, 2, 8));
  EXPECT_NE(chosen, by_loops(x, 2, 7));
  EXPECT_NE(chosen, by_loops(x, 2, 9));
  // The weights are those of the scores as they were.
  EXPECT_TRUE(torch::allclose(routing.weight_TK, x.softmax(1).gather(1, routing.choice_TK), 1e-14));
}

TEST(Sinkhorn, SpreadsTokensThatAllPreferOneUnit) {
  auto router = identity_router("{name: sinkhorn, k: 1}", 4);
  const torch::Tensor x =
      some_numbers({400, 4}, 6) + torch::tensor({3.0, 0.0, 0.0, 0.0}, torch::kFloat64);
  const auto most = [&](bool training) {
    return route_all(*router, x, training).choice_TK.flatten().bincount().max().item<int64_t>();
  };
  EXPECT_LT(most(true), 130);
  EXPECT_EQ(most(false), 400);
}

TEST(Sinkhorn, EvaluationIsPlainTopK) {
  auto router = identity_router("{name: sinkhorn, k: 2}", 5);
  const torch::Tensor x = some_numbers({30, 5}, 3);
  EXPECT_TRUE(torch::equal(route_all(*router, x, false).choice_TK, top_k(x, 2)));
}

TEST(Sinkhorn, LooksNoFurtherThanARoutingGroup) {
  auto router = identity_router("{name: sinkhorn, k: 1}", 4);
  const torch::Tensor x = some_numbers({60, 4}, 7) * 2;
  const StepContext all = step_of(10, 4), first = step_of(4, 4);
  const Routing whole = router->route(x, make_token_context(all, 5, 6));
  const Routing part = router->route(x.slice(0, 0, 24), make_token_context(first, 5, 6));
  EXPECT_TRUE(torch::equal(whole.choice_TK.slice(0, 0, 24), part.choice_TK));
}

TEST(Sinkhorn, LogitsThatOverflowAnExponentialAreNoTrouble) {
  auto router = identity_router("{name: sinkhorn, k: 1}", 4);
  const torch::Tensor x = some_numbers({40, 4}, 7) * 2;
  const torch::Tensor shift_T1 = (torch::arange(40, torch::kFloat64) * 100 - 2000).unsqueeze(1);
  EXPECT_TRUE(
      torch::equal(route_all(*router, x).choice_TK, route_all(*router, x + shift_T1).choice_TK));
}

TEST(Sinkhorn, TakesNoTokens) {
  auto router = identity_router("{name: sinkhorn, k: 1}", 3);
  EXPECT_EQ(route_all(*router, torch::zeros({0, 3}, torch::kFloat64)).choice_TK.size(0), 0);
}

}  // namespace
}  // namespace shoal
