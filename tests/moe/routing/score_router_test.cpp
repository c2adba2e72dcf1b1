#include "moe/routing/score_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/routing/capacity.h"
#include "runtime/base/error.h"
#include "tests/moe/routers/router_fixture.h"
#include "tests/support/config_error.h"
#include "tests/support/thread_communicator.h"

// T tokens  U units
namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::identity_router;
using ::testing::IsEmpty;
using testing::problems_of;
using testing::route_all;
using testing::router_choice;
using testing::router_of;
using testing::run_ranks;
using testing::some_numbers;
using testing::step_of;
using testing::values;
using Ids = std::vector<int64_t>;

double softplus(double x) { return std::log1p(std::exp(x)); }

struct Family {
  const char* name;
  double (*score)(double logit);
};
const Family kFamilies[] = {
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"sqrt_softplus", [](double x) { return std::sqrt(softplus(x)); }},
};

TEST(ScoreRouter, ScoresUnitsOnTheirOwnAndDividesTheChosenByTheirSum) {
  const std::vector<double> logits{0.5, -1.0, 2.0, 0.1};
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.name);
    auto router = identity_router(fmt::format("{{name: {}, k: 2}}", family.name), 4);
    const Routing routing = route_all(*router, torch::tensor(logits, torch::kFloat64).unsqueeze(0));
    EXPECT_EQ(values(routing.choice_TK), (Ids{2, 0}));
    const double first = family.score(2.0), second = family.score(0.5);
    double all = 0;
    for (const double logit : logits) all += family.score(logit);
    EXPECT_NEAR(routing.weight_TK[0][0].item<double>(), first / (first + second), 1e-15);
    EXPECT_NEAR(routing.weight_TK[0][1].item<double>(), second / (first + second), 1e-15);
    EXPECT_NEAR(routing.score_TK[0][0].item<double>(), first, 1e-15);
    for (size_t u = 0; u < logits.size(); ++u) {
      EXPECT_NEAR(routing.prob_TU[0][static_cast<int64_t>(u)].item<double>(),
                  family.score(logits[u]) / all, 1e-15);
    }
  }
}

TEST(ScoreRouter, ScoresThatUnderflowGiveFiniteWeightsAndGradients) {
  for (const Family& family : kFamilies) {
    const Router::Context context{1, 4, torch::kFloat32};
    auto router = router_of(fmt::format("{{name: {}, k: 2}}", family.name), context);
    const torch::Tensor x = torch::full({3, 1}, -1e4, torch::kFloat32);
    {
      const torch::NoGradGuard no_grad;
      router->parameters()[0].fill_(1.0);
    }
    const Routing routing = route_all(*router, x);
    EXPECT_TRUE(routing.weight_TK.isfinite().all().item<bool>()) << family.name;
    (routing.weight_TK.sum() + routing.prob_TU.sum()).backward();
    EXPECT_TRUE(router->parameters()[0].grad().isfinite().all().item<bool>()) << family.name;
  }
}

TEST(ScoreRouter, LearnedNoiseHasTheDeviationThatItsWeightsSay) {
  auto router = router_of("{name: noisy_top_k, k: 2}", {3, 4, torch::kFloat64});
  const torch::Tensor x = some_numbers({1, 3}, 3).expand({20000, 3});
  const Routing routing = route_all(*router, x);
  const torch::Tensor wanted = (torch::log1p(x[0].matmul(router->parameters()[1]).exp()) + 1e-2);
  const torch::Tensor noise = routing.noisy_TU - routing.logits_TU;
  EXPECT_TRUE(torch::allclose(noise.std(0), wanted, 0.02)) << noise.std(0) << wanted;
  EXPECT_TRUE(torch::allclose(routing.noise_std_TU[0], wanted, 1e-12));
  EXPECT_LT(noise.mean().abs().item<double>(), 0.02);
  // Softmax over the chosen noisy logits.
  EXPECT_TRUE(torch::allclose(routing.weight_TK,
                              routing.noisy_TU.gather(1, routing.choice_TK).softmax(1), 1e-14));
  EXPECT_TRUE(torch::equal(route_all(*router, x, /*training=*/false).noisy_TU, routing.logits_TU));
}

TEST(ScoreRouter, GradientsAreThoseOfFiniteDifferences) {
  for (const char* recipe :
       {"{name: sigmoid, k: 2}", "{name: sqrt_softplus, k: 2}", "{name: noisy_top_k, k: 2}",
        "{name: sigmoid, k: 2, noise: gaussian, weights: {normalise: none}}",
        "{name: top_k, k: 2, groups: {count: 2, keep: 1}}", "{name: sinkhorn, k: 2}",
        "{name: expert_choice, k: 2}"}) {
    SCOPED_TRACE(recipe);
    auto router = router_of(recipe, {5, 4, torch::kFloat64});
    torch::Tensor x = some_numbers({6, 5}, 8).set_requires_grad(true);
    const auto all = [&] {
      const Routing routing = route_all(*router, x);
      std::vector<torch::Tensor> parts{routing.weight_TK, routing.prob_TU, routing.noisy_TU};
      if (routing.noise_std_TU.defined()) parts.push_back(routing.noise_std_TU);
      return torch::cat(parts, 1);
    };
    std::vector<torch::Tensor> inputs = router->parameters();
    inputs.push_back(x);
    EXPECT_LT(testing::gradient_error(all, inputs), 1e-7);
  }
}

torch::Tensor bias_of(Router& router) { return router.buffers()[0]; }

torch::Tensor scores_of(const std::string& router, const torch::Tensor& logits_TU) {
  if (router == "sigmoid") return logits_TU.sigmoid();
  if (router == "sqrt_softplus") return torch::log1p(logits_TU.exp()).sqrt();
  return logits_TU.softmax(1);
}

// R6: the choices of a group limit by plain loops, of scores that may hold a bias.
Ids limited_choice(const std::vector<double>& score, int64_t groups, int64_t keep, int64_t k,
                   const std::string& rule) {
  const auto size = static_cast<int64_t>(score.size()) / groups;
  std::vector<std::pair<double, int64_t>> worth;
  for (int64_t g = 0; g < groups; ++g) {
    std::vector<double> own(score.begin() + g * size, score.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    const int64_t best = rule == "max" ? 1 : rule == "top2_sum" ? 2 : k < keep ? 1 : k / keep;
    worth.emplace_back(-std::accumulate(own.begin(), own.begin() + best, 0.0), g);
  }
  std::sort(worth.begin(), worth.end());
  std::vector<std::pair<double, int64_t>> units;
  for (int64_t i = 0; i < keep; ++i) {
    for (int64_t u = worth[i].second * size; u < (worth[i].second + 1) * size; ++u) {
      units.emplace_back(-score[u], u);
    }
  }
  std::sort(units.begin(), units.end());
  Ids choice;
  for (int64_t i = 0; i < k; ++i) choice.push_back(units[i].second);
  return choice;
}

TEST(ScoreRouter, GroupLimitsChooseAsPlainLoopsDo) {
  struct Case {
    int64_t units, groups, keep, k;
  };
  // topk_sum adds 1, 1, 2, 2 (5 / 2 rounded down) and 3 scores of a group.
  for (const Case& test : {Case{16, 8, 3, 5}, Case{16, 8, 3, 2}, Case{12, 4, 2, 4},
                           Case{12, 4, 2, 5}, Case{12, 2, 1, 3}}) {
    for (const char* rule : {"top2_sum", "max", "topk_sum"}) {
      for (const char* name : {"top_k", "sigmoid", "sqrt_softplus"}) {
        for (const double bias : {0.0, 0.3}) {
          SCOPED_TRACE(
              fmt::format("{} {} {} of {}, bias {}", name, rule, test.keep, test.groups, bias));
          auto router = identity_router(
              fmt::format("{{name: {}, k: {}, noise: none, groups: {{count: {}, keep: {}, score: "
                          "{}}}, bias: {{rate: {}}}}}",
                          name, test.k, test.groups, test.keep, rule, bias),
              test.units);
          const torch::Tensor bias_U = some_numbers({test.units}, 6) * bias;
          if (bias > 0) bias_of(*router).copy_(bias_U);
          const torch::Tensor x = some_numbers({40, test.units}, 9) * 3;
          const Routing routing = route_all(*router, x);
          const torch::Tensor selection = scores_of(name, x) + bias_U;
          for (int64_t t = 0; t < 40; ++t) {
            const double* own = selection[t].const_data_ptr<double>();
            ASSERT_EQ(
                values(routing.choice_TK[t]),
                limited_choice({own, own + test.units}, test.groups, test.keep, test.k, rule));
          }
        }
      }
    }
  }
}

// R6: choices that were made elsewhere give the weights of the router that would have made them.
TEST(ScoreRouter, ChoicesMadeElsewhereGetItsWeights) {
  struct Rule {
    int64_t k;
    const char* name;
    Normalise normalise;
  };
  const Rule rules[] = {{1, "none", Normalise::kNone},
                        {2, "none", Normalise::kNone},
                        {2, "sum", Normalise::kSum},
                        {2, "topk_softmax", Normalise::kTopkSoftmax}};
  const torch::Tensor x = some_numbers({20, 6}, 12) * 2;
  for (const char* name : {"top_k", "sigmoid", "sqrt_softplus"}) {
    for (const Rule& rule : rules) {
      SCOPED_TRACE(fmt::format("{} {} {}", name, rule.k, rule.name));
      auto router = identity_router(
          fmt::format("{{name: {}, k: {}, noise: none, weights: {{normalise: {}}}}}", name, rule.k,
                      rule.name),
          6);
      const Routing routing = route_all(*router, x);
      const torch::Tensor choice_TK =
          std::get<1>(x.sort(1, /*descending=*/true)).slice(1, 0, rule.k);
      EXPECT_TRUE(torch::equal(routing.choice_TK, choice_TK));
      const torch::Tensor given = combine_weights(scores_of(name, x), x, choice_TK, rule.normalise);
      EXPECT_TRUE(torch::allclose(routing.weight_TK, given, 0, 1e-14));
      const torch::Tensor part =
          rule.normalise == Normalise::kTopkSoftmax ? x.exp() : scores_of(name, x);
      torch::Tensor expected = part.gather(1, choice_TK);
      if (rule.normalise != Normalise::kNone) expected = expected / expected.sum(1, true);
      EXPECT_TRUE(torch::allclose(routing.weight_TK, expected, 0, 1e-14));
    }
  }
}

std::vector<std::string> mistakes(const std::string& recipe) {
  return testing::mistakes_of([&] { router_choice(recipe); });
}

// R7: in every router with weights of its own. Some normalise unless told otherwise.
TEST(ScoreRouter, OneUnitATokenRefusesNormalisedWeightsInEveryRouter) {
  for (const char* name :
       {"top_k", "noisy_top_k", "sigmoid", "sqrt_softplus", "importance_score", "sinkhorn"}) {
    SCOPED_TRACE(name);
    const auto of = [&](int64_t k, const std::string& weights) {
      return mistakes(fmt::format("{{name: {}, k: {}, weights: {{{}}}}}", name, k, weights));
    };
    EXPECT_THAT(of(1, "normalise: none"), IsEmpty());
    for (const char* rule : {"topk_softmax", "sum"}) {
      EXPECT_THAT(of(1, fmt::format("normalise: {}", rule)),
                  ElementsAre(HasSubstr(fmt::format(
                      "router.weights.normalise: {} makes every weight 1 when k is 1", rule))));
      EXPECT_THAT(of(2, fmt::format("normalise: {}", rule)), IsEmpty());
    }
    EXPECT_THAT(of(1, "normalise: none, renorm_after_drop: true"),
                ElementsAre(HasSubstr(
                    "router.weights.renorm_after_drop: true makes every weight 1 when k is 1")));
    EXPECT_THAT(of(2, "normalise: none, renorm_after_drop: true"), IsEmpty());
  }
  for (const auto& [name, rule] :
       {std::pair{"sigmoid", "sum"}, {"sqrt_softplus", "sum"}, {"noisy_top_k", "topk_softmax"}}) {
    EXPECT_THAT(mistakes(fmt::format("{{name: {}, k: 1}}", name)),
                ElementsAre(HasSubstr(fmt::format("weights.normalise: {} makes every", rule))))
        << name;
  }
  for (const char* name : {"top_k", "importance_score", "sinkhorn"}) {
    EXPECT_THAT(mistakes(fmt::format("{{name: {}, k: 1}}", name)), IsEmpty()) << name;
  }
}

TEST(ScoreRouter, GroupsOfEqualWorthGoToTheLower) {
  const torch::Tensor score = torch::tensor({{.1, .4, .4, .1, .3, .2}}, torch::kFloat64);
  const torch::Tensor limited =
      limit_to_groups(score, {3, 2, GroupScore::kTop2Sum}, /*k=*/2);  // 0.5 each
  EXPECT_EQ(values(limited.isfinite()), (Ids{1, 1, 1, 1, 0, 0}));
}

TEST(ScoreRouter, AllGroupsKeptIsNoLimit) {
  const torch::Tensor x = some_numbers({30, 8}, 4) * 2;
  auto plain = identity_router("{name: top_k, k: 3, noise: none}", 8);
  auto grouped =
      identity_router("{name: top_k, k: 3, noise: none, groups: {count: 4, keep: 4}}", 8);
  EXPECT_TRUE(torch::equal(route_all(*plain, x).choice_TK, route_all(*grouped, x).choice_TK));
}

TEST(ScoreRouter, ImpossibleGroupLimitsAreRefused) {
  EXPECT_THAT(problems_of("{name: top_k, groups: {count: 4, keep: 2}}", 8), IsEmpty());
  EXPECT_THAT(problems_of("{name: top_k, groups: {count: 3}}", 8),
              ElementsAre("router.groups.count: 8 units cannot be cut into 3 equal groups"));
  EXPECT_THAT(
      problems_of("{name: top_k, groups: {count: 4, keep: 5}}", 8),
      ElementsAre("router.groups.keep: a token may be routed to 5 groups, but there are only 4"));
  EXPECT_THAT(
      problems_of("{name: sigmoid, k: 4, groups: {count: 4, keep: 1}}", 8),
      ElementsAre(HasSubstr("a token is routed to 4 units, but 1 of 4 groups hold only 2")));
  EXPECT_THAT(problems_of("{name: top_k, k: 2, groups: {count: 8, keep: 2}}", 8),
              ElementsAre(HasSubstr("router.groups.score: top2_sum needs groups of two units")));
  EXPECT_THAT(problems_of("{name: top_k, k: 9, groups: {count: 4, keep: 1}}", 8),
              ElementsAre("router.k: 9 units per token, but there are only 8"));
}

/// x such that unit u is the first choice of count_U[u] tokens.
torch::Tensor tokens_for(const Ids& count_U) {
  std::vector<torch::Tensor> rows;
  const torch::Tensor one = torch::eye(static_cast<int64_t>(count_U.size()), torch::kFloat64);
  for (size_t u = 0; u < count_U.size(); ++u) {
    for (int64_t i = 0; i < count_U[u]; ++i) rows.push_back(one[static_cast<int64_t>(u)]);
  }
  return torch::stack(rows);
}

TEST(SelectionBias, StepsTowardsTheMeanByTheSignOfTheLoad) {
  const auto self = make_self_communicator();
  auto plain = identity_router(
      "{name: sigmoid, k: 1, weights: {normalise: none}, "
      "bias: {rate: 1e-3}}",
      4);
  auto centred = identity_router(
      "{name: sigmoid, k: 1, weights: {normalise: none}, "
      "bias: {rate: 1e-3, centred: true}}",
      4);
  for (const auto& router : {plain, centred}) {
    route_all(*router, tokens_for({10, 10, 10, 70}));
    router->after_step(*self);
  }
  const torch::Tensor one = torch::tensor({1., 1., 1., -1.}, torch::kFloat64);
  EXPECT_TRUE(torch::allclose(bias_of(*plain), one * 1e-3, 1e-12));
  EXPECT_TRUE(torch::allclose(bias_of(*centred), (one - 0.5) * 1e-3, 1e-12));
}

TEST(SelectionBias, StaysWhereTheLoadIsTheMean) {
  const auto self = make_self_communicator();
  auto router = identity_router(
      "{name: sigmoid, k: 1, weights: {normalise: none}, "
      "bias: {rate: 0.5}}",
      3);
  route_all(*router, tokens_for({2, 1, 3}));
  router->after_step(*self);
  EXPECT_TRUE(torch::equal(bias_of(*router), torch::tensor({0.0, 0.5, -0.5}, torch::kFloat64)));
}

TEST(SelectionBias, SelectsAndDoesNotWeight) {
  auto router = identity_router(
      "{name: sigmoid, k: 1, weights: {normalise: none}, "
      "bias: {rate: 1}}",
      3);
  bias_of(*router).copy_(torch::tensor({0.0, 0.0, 2.0}, torch::kFloat64));
  const Routing routing = route_all(*router, torch::tensor({{1.0, 0.5, -1.0}}, torch::kFloat64));
  EXPECT_EQ(values(routing.choice_TK), Ids{2});
  const double score = 1 / (1 + std::exp(1.0));
  EXPECT_NEAR(routing.weight_TK.item<double>(), score, 1e-15);
  EXPECT_NEAR(routing.score_TK.item<double>(), score, 1e-15);
}

// What a bias selects is no measure of how certain a token is: its best unit may be another.
TEST(SelectionBias, LeavesATokensPriorityToItsBestUnit) {
  struct Case {
    const char* name;
    double priority;
  };
  const torch::Tensor logits = torch::tensor({{1.0, 0.5, -1.0}}, torch::kFloat64);
  const double softmax = std::exp(1.0) / logits.exp().sum().item<double>();
  const double sigmoid = 1 / (1 + std::exp(-1.0));
  for (const Case& test :
       {Case{"top_k", softmax}, Case{"sigmoid", sigmoid},
        Case{"sqrt_softplus", std::sqrt(softplus(1.0))}, Case{"importance_score", softmax}}) {
    SCOPED_TRACE(test.name);
    auto router = identity_router(
        fmt::format("{{name: {}, k: 1, noise: none, weights: {{normalise: none}}, bias: {{rate: "
                    "1}}}}",
                    test.name),
        3);
    bias_of(*router).copy_(torch::tensor({0.0, 0.0, 2.0}, torch::kFloat64));
    const Routing routing = route_all(*router, logits, /*training=*/false);
    EXPECT_EQ(values(routing.choice_TK), Ids{2});
    ASSERT_EQ(routing.priority_T.sizes(), (std::vector<int64_t>{1}));
    EXPECT_FALSE(routing.priority_T.requires_grad());
    EXPECT_NEAR(routing.priority_T.item<double>(), test.priority, 1e-15);
  }
}

TEST(ScoreRouter, PriorityIsOfTheScoresWithNoise) {
  auto router = identity_router("{name: top_k, k: 2, noise: gaussian}", 4);
  const Routing routing = route_all(*router, some_numbers({5, 4}, 8));
  EXPECT_TRUE(torch::allclose(routing.priority_T, routing.noisy_TU.softmax(1).amax(1), 0, 1e-15));
  EXPECT_FALSE(torch::allclose(routing.priority_T, routing.logits_TU.softmax(1).amax(1), 0, 1e-6));
}

TEST(SelectionBias, PriorityIsThatOfTheGroupsThatATokenMayVisit) {
  auto router = identity_router(
      "{name: top_k, k: 1, noise: none, groups: {count: 2, keep: 1, score: max}, bias: {rate: 1}}",
      4);
  bias_of(*router).copy_(torch::tensor({0.0, 0.0, 0.5, 0.0}, torch::kFloat64));
  const torch::Tensor score = torch::tensor({{.5, .1, .15, .25}}, torch::kFloat64);
  const Routing routing = route_all(*router, score.log());
  EXPECT_EQ(values(routing.choice_TK), Ids{2});
  EXPECT_NEAR(routing.priority_T.item<double>(), 0.25, 1e-15);
}

TEST(SelectionBias, TheTokenOfTheBestUnitKeepsItsPlace) {
  // Both tokens go to unit 2, which has one place; chosen scores are .2 and .1.
  auto router = identity_router("{name: top_k, k: 1, noise: none, bias: {rate: 1}}", 3);
  bias_of(*router).copy_(torch::tensor({0.0, 0.0, 2.0}, torch::kFloat64));
  const torch::Tensor score = torch::tensor({{.5, .3, .2}, {.8, .1, .1}}, torch::kFloat64);
  const Routing routing = route_all(*router, score.log());
  EXPECT_EQ(values(routing.choice_TK), (Ids{2, 2}));
  const auto kept = [&](CapacityOrder order) {
    return values(apply_capacity(routing, {CapacityMode::kCapped, 0.5, 0, 1, order}).token_A);
  };
  EXPECT_EQ(kept(CapacityOrder::kBatchPriority), Ids{1});
  EXPECT_EQ(kept(CapacityOrder::kProbability), Ids{0});
}

// L6: what is not a training pass with gradients does not count, nor does a step that was skipped.
TEST(SelectionBias, CountsTrainingPassesOfTheStepOnly) {
  const auto self = make_self_communicator();
  const std::string recipe = "{name: sigmoid, k: 1, weights: {normalise: none}, bias: {rate: 1}}";
  const auto bias_after = [&](const std::function<void(Router&)>& before) {
    auto router = identity_router(recipe, 3);
    before(*router);
    route_all(*router, tokens_for({2, 1, 0}));
    router->after_step(*self);
    return bias_of(*router);
  };
  const torch::Tensor expected = bias_after([](Router&) {});
  EXPECT_TRUE(torch::equal(expected, torch::tensor({-1., 0., 1.}, torch::kFloat64)));
  const torch::Tensor other = tokens_for({0, 0, 9});
  EXPECT_TRUE(
      torch::equal(expected, bias_after([&](Router& router) { route_all(router, other, false); })));
  EXPECT_TRUE(torch::equal(expected, bias_after([&](Router& router) {
                             const torch::NoGradGuard no_grad;
                             route_all(router, other);
                           })));
  EXPECT_TRUE(torch::equal(expected, bias_after([&](Router& router) {  // skipped: no after_step
                             StepContext step = step_of(9, 9);
                             step.step = 10;
                             router.route(other, make_token_context(step, 5, 1));
                           })));
}

TEST(SelectionBias, SumsMicroStepsAndRanks) {
  const std::string recipe = "{name: sigmoid, k: 1, weights: {normalise: none}, bias: {rate: 1}}";
  run_ranks(3, [&](Communicator& world) {
    auto router = identity_router(recipe, 3);
    // Alone, each of these would be balanced the other way.
    route_all(*router, tokens_for({2, 0, 1}));
    if (world.rank() == 1) route_all(*router, tokens_for({0, 9, 0}));
    router->after_step(world);
    EXPECT_TRUE(torch::equal(bias_of(*router), torch::tensor({0., -1., 1.}, torch::kFloat64)))
        << bias_of(*router);
  });
}

TEST(SelectionBias, IsSavedButIsNoParameter) {
  auto router = identity_router("{name: sigmoid, bias: {rate: 1e-3}}", 3);
  EXPECT_EQ(parameters_of(*router).size(), 1u);
  const std::vector<Parameter> buffers = buffers_of(*router, "blocks.1.moe.router");
  ASSERT_EQ(buffers.size(), 1u);
  EXPECT_EQ(buffers[0].name, "blocks.1.moe.router.selection_bias");
  EXPECT_TRUE(buffers_of(*identity_router("{name: sigmoid}", 3)).empty());
}

}  // namespace
}  // namespace shoal
