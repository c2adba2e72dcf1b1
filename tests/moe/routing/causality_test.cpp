#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "moe/routing/capacity.h"
#include "runtime/options/config.h"
#include "tests/moe/routers/router_fixture.h"
#include "tests/support/collected_problems.h"

// T tokens  U units
namespace shoal {
namespace {

using testing::CollectedProblems;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::router_of;
using testing::some_numbers;
using testing::step_of;

std::vector<std::string> refusals(const std::string& recipe, const Capacity& capacity = {}) {
  CollectedProblems problems;
  check_causality(*router_of(recipe, {6, 4, torch::kFloat64}), "R", capacity, problems);
  return problems.lines;
}

TEST(Causality, EveryRouterIsRefusedOrNamedAsTheWayOut) {
  const std::string refusal = refusals("{name: sinkhorn}").at(0);
  std::set<std::string> refused;
  for (const config::MemberInfo* router : members_of<Router>().members()) {
    if (!refusals(fmt::format("{{name: {}}}", router->name)).empty()) {
      refused.insert(std::string(router->name));
    } else {
      EXPECT_THAT(refusal, HasSubstr(router->name));
    }
  }
  EXPECT_EQ(refused, (std::set<std::string>{"expert_choice", "importance_score", "sinkhorn"}));
}

TEST(Causality, ImportanceScoresWithoutADropAreCausal) {
  EXPECT_THAT(refusals("{name: importance_score, drop: 0}"), IsEmpty());
  EXPECT_THAT(refusals("{name: importance_score, drop: 0.1}"),
              ElementsAre(HasSubstr("router.name: a causal model cannot use R")));
  EXPECT_THAT(refusals("{name: importance_score, drop: 0, eval_drop: 0.1}"),
              ElementsAre(HasSubstr("router.name: a causal model cannot use R")));
}

/// Every capacity rule that is not dropless.
std::vector<Capacity> caps() {
  std::vector<Capacity> result;
  for (const CapacityMode mode : {CapacityMode::kCapped, CapacityMode::kPadded}) {
    for (size_t order = 0; order < kEnumWords<CapacityOrder>.size(); ++order) {
      result.push_back({mode, 0.5, 0, 1, static_cast<CapacityOrder>(order)});
    }
  }
  return result;
}

TEST(Causality, OrdersUnderACapAreRefusedByName) {
  for (const Capacity& capacity : caps()) {
    for (const int64_t k : {1, 2}) {
      const bool is_fine = capacity.order == CapacityOrder::kPosition ||
                           (capacity.order == CapacityOrder::kSlotMajor && k == 1);
      const std::string router = fmt::format("{{name: top_k, k: {}}}", k);
      const auto found = refusals(router, capacity);
      if (is_fine) {
        EXPECT_THAT(found, IsEmpty());
      } else {
        EXPECT_THAT(found, ElementsAre(HasSubstr(fmt::format("capacity.order: a causal model "
                                                             "cannot use {} under a cap",
                                                             enum_name(capacity.order)))));
      }
      Capacity dropless = capacity;
      dropless.mode = CapacityMode::kDropless;
      EXPECT_THAT(refusals(router, dropless), IsEmpty());
    }
  }
}

/// For each token, which of its choices keep their row.
torch::Tensor kept_TK(const Routing& routing, const Capacity& capacity) {
  const torch::Tensor choice_A = apply_capacity(routing, capacity).choice_A;
  torch::Tensor kept = torch::zeros({routing.unit_TK.numel()}, torch::kInt64);
  kept.index_fill_(0, choice_A.masked_select(choice_A >= 0), 1);
  return kept.view(routing.unit_TK.sizes());
}

/// Whether the last half of a sample's tokens changes what becomes of the first half.
bool depends_on_later_tokens(const std::string& recipe, const Capacity& capacity) {
  constexpr int64_t kTokens = 12, kUnits = 4;
  auto router = testing::identity_router(recipe, kUnits);
  const StepContext step = step_of(1, 1);
  const TokenContext context = make_token_context(step, 5, kTokens);
  for (int64_t seed = 1; seed < 40; ++seed) {
    const torch::Tensor x = some_numbers({kTokens, kUnits}, seed) * 3;
    torch::Tensor other = x.clone();
    other.narrow(0, kTokens / 2, kTokens / 2) *= -2;
    const Routing a = router->route(x, context), b = router->route(other, context);
    const auto first = [](const torch::Tensor& tensor) { return tensor.narrow(0, 0, kTokens / 2); };
    const bool same = torch::equal(first(a.unit_TK), first(b.unit_TK)) &&
                      torch::equal(first(a.weight_TK), first(b.weight_TK)) &&
                      torch::equal(first(kept_TK(a, capacity)), first(kept_TK(b, capacity)));
    if (!same) return true;
  }
  return false;
}

TEST(Causality, RoutersAreWhatTheyState) {
  for (const char* recipe :
       {"{name: top_k}", "{name: noisy_top_k}", "{name: sigmoid}", "{name: sqrt_softplus}",
        "{name: importance_score, drop: 0}", "{name: importance_score, drop: 0.4}",
        "{name: sinkhorn}", "{name: expert_choice}"}) {
    EXPECT_EQ(depends_on_later_tokens(recipe, {}), !refusals(recipe).empty()) << recipe;
  }
}

TEST(Causality, OrdersAreWhatTheyState) {
  for (const Capacity& capacity : caps()) {
    for (const int64_t k : {1, 2}) {
      const std::string recipe = fmt::format("{{name: top_k, k: {}, noise: none}}", k);
      EXPECT_EQ(depends_on_later_tokens(recipe, capacity), !is_causal(capacity, k))
          << enum_name(capacity.order) << " " << k;
    }
  }
}

}  // namespace
}  // namespace shoal
