#include "moe/routers/importance_score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/moe/routing/make_routing.h"
#include "tests/moe/routing/make_step.h"
#include "tests/support/gradient_check.h"

// T tokens  D width  U units
namespace shoal {
namespace {

using testing::some_numbers;
using testing::step_of;
using testing::values;
using Ids = std::vector<int64_t>;

/// A router that passes its input on as logits.
ImportanceScoreRouter importance_identity_router(double drop, double eval_drop, int64_t num_units) {
  ImportanceScoreRouter router({{1, RouterNoise::kNone, {}}, drop, eval_drop},
                               {num_units, num_units, torch::kFloat64});
  torch::NoGradGuard no_grad;
  router.parameters()[0].copy_(torch::eye(num_units, torch::kFloat64));
  return router;
}

Ids masked(const Routing& routing) {
  Ids result;
  const Ids units = values(routing.unit_TK);
  for (size_t t = 0; t < units.size(); ++t) {
    if (units[t] < 0) result.push_back(static_cast<int64_t>(t));
  }
  return result;
}

TEST(ImportanceScore, MasksTheTokensWhoseHighestScoreIsLowest) {
  ImportanceScoreRouter router = importance_identity_router(0.4, 0.0, 2);
  // Highest scores: sigmoid of the distance of the logits, so tokens 3, 1, 0, 4, 2 from the lowest.
  const torch::Tensor x =
      torch::tensor({{3.0, 0.0}, {0.0, 2.0}, {0.0, 9.0}, {1.0, 0.0}, {5.0, 0.0}}, torch::kFloat64);
  const Routing routing = router.route(x, make_token_context(step_of(5, 5), 0, 1));
  EXPECT_EQ(values(routing.unit_TK), (Ids{0, -1, 1, -1, 0}));
  EXPECT_EQ(values(routing.choice_TK), (Ids{0, 1, 1, 0, 0}));
}

/// The one token of three that is masked, of one unit a token with a bias for unit `favoured`.
Ids masked_beside_a_bias(const torch::Tensor& score_TU, int64_t favoured,
                         const GroupLimit& groups) {
  const int64_t num_units = score_TU.size(1);
  ScoreOptions top_k{1, RouterNoise::kNone, {}, groups, {.rate = 1.0}};
  ImportanceScoreRouter router({top_k, 0.34, 0.0}, {num_units, num_units, torch::kFloat64});
  const torch::NoGradGuard no_grad;
  router.parameters()[0].copy_(torch::eye(num_units, torch::kFloat64));
  router.buffers()[0].zero_();
  router.buffers()[0][favoured] = 0.5;
  const Routing routing = router.route(score_TU.log(), make_token_context(step_of(3, 3), 0, 1));
  EXPECT_EQ(values(routing.choice_TK), (Ids{favoured, favoured, favoured}));
  return masked(routing);
}

TEST(ImportanceScore, IsTheHighestScoreWhateverABiasSelects) {
  // Chosen scores .45, .4 and .3: the least important is another.
  const torch::Tensor score = torch::tensor({{.55, .45}, {.6, .4}, {.7, .3}}, torch::kFloat64);
  EXPECT_EQ(masked_beside_a_bias(score, 1, {}), Ids{0});
}

TEST(ImportanceScore, IsTheHighestScoreOfTheGroupsThatATokenMayVisit) {
  // The second group has the unit of the highest selection score. Highest scores there: .25, .32
  // and .55; over all units .5, .32 and .55; chosen: .15, .28 and .1.
  const torch::Tensor score =
      torch::tensor({{.5, .1, .15, .25}, {.2, .2, .28, .32}, {.2, .15, .1, .55}}, torch::kFloat64);
  EXPECT_EQ(masked_beside_a_bias(score, 2, {2, 1, GroupScore::kMax}), Ids{0});
}

TEST(ImportanceScore, WeightsSumToOneOnlyIfNoTokenIsLeftOut) {
  const auto sum_to_one = [](double drop, double eval_drop, Normalise normalise) {
    const ScoreOptions top_k{2, RouterNoise::kNone, {normalise}};
    return ImportanceScoreRouter({top_k, drop, eval_drop}, {4, 4, torch::kFloat64})
        .weights_sum_to_one();
  };
  EXPECT_TRUE(sum_to_one(0.0, 0.0, Normalise::kTopkSoftmax));
  EXPECT_FALSE(sum_to_one(0.1, 0.0, Normalise::kTopkSoftmax));
  EXPECT_FALSE(sum_to_one(0.0, 0.1, Normalise::kTopkSoftmax));
  EXPECT_FALSE(sum_to_one(0.0, 0.0, Normalise::kNone));
}

TEST(ImportanceScore, DropsTheFloorOfTheShareInEachGroup) {
  ImportanceScoreRouter router = importance_identity_router(0.29, 0.0, 2);
  // Groups of 100 and 50 tokens: 29 exactly, and floor(14.5) = 14. Importance falls with the token.
  const torch::Tensor strength = torch::arange(150, 0, -1, torch::kFloat64) / 50;
  const torch::Tensor x = torch::stack({strength, torch::zeros_like(strength)}, 1);
  const Ids dropped = masked(router.route(x, make_token_context(step_of(15, 10), 0, 10)));
  ASSERT_EQ(dropped.size(), 43u);
  EXPECT_EQ(dropped.front(), 71);
  EXPECT_EQ(dropped[28], 99);
  EXPECT_EQ(dropped[29], 136);
}

TEST(ImportanceScore, TiesKeepTheLowerToken) {
  ImportanceScoreRouter router = importance_identity_router(0.5, 0.0, 3);
  const torch::Tensor x = torch::zeros({6, 3}, torch::kFloat64);
  EXPECT_EQ(masked(router.route(x, make_token_context(step_of(6, 3), 0, 1))), (Ids{2, 5}));
}

TEST(ImportanceScore, EvaluationDropsOnlyOnDemand) {
  const torch::Tensor x = some_numbers({20, 3}, 1);
  const StepContext step = step_of(20, 10, false);
  ImportanceScoreRouter keeps = importance_identity_router(0.5, 0.0, 3);
  EXPECT_TRUE(masked(keeps.route(x, make_token_context(step, 0, 1))).empty());
  ImportanceScoreRouter drops = importance_identity_router(0.0, 0.2, 3);
  EXPECT_EQ(masked(drops.route(x, make_token_context(step, 0, 1))).size(), 4u);
}

TEST(ImportanceScore, StatisticsIncludeMaskedTokens) {
  ImportanceScoreRouter router = importance_identity_router(0.5, 0.0, 3);
  const torch::Tensor x = some_numbers({10, 3}, 1);
  const Routing routing = router.route(x, make_token_context(step_of(10, 10), 0, 1));
  EXPECT_EQ(masked(routing).size(), 5u);
  EXPECT_GE(values(routing.choice_TK.min()).front(), 0);
  EXPECT_TRUE(torch::allclose(routing.prob_TU, x.softmax(1)));
}

TEST(ImportanceScore, IsRegisteredWithTopKsKeysBesideItsOwn) {
  Choice<Router> choice("importance_score");
  EXPECT_EQ(choice.options<ImportanceScoreRouter>().top_k.k, 1);
  EXPECT_EQ(choice.options<ImportanceScoreRouter>().drop, 0.1);
  EXPECT_EQ(choice.options<ImportanceScoreRouter>().eval_drop, 0.0);
}

}  // namespace
}  // namespace shoal
