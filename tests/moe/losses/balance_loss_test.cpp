#include "moe/losses/balance_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "moe/moe_layer.h"
#include "moe/routing/score_router.h"
#include "runtime/base/error.h"
#include "tests/moe/losses/loss_value.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"
#include "tests/support/reference_moe.h"

// T tokens  U units  S scope instances
namespace shoal {
namespace {

using testing::gradient_error;
using testing::loss_step;
using testing::make_loss;
using testing::make_routing;
using testing::some_numbers;
using testing::value_of;

Routing noisy_routing(const torch::Tensor& logits, const torch::Tensor& noise, int64_t k,
                      double noise_std) {
  Routing routing = make_routing(logits, k);
  routing.noisy_TU = logits + noise;
  routing.choice_TK = top_k(routing.noisy_TU.detach(), k);
  routing.noise_std = noise_std;
  return routing;
}

const torch::Tensor kGates =
    torch::tensor({{.5, .4, .1}, {.3, .3, .4}, {.1, .2, .7}, {.8, .2, 0.}}, torch::kFloat64);
const torch::Tensor kLogits =
    torch::tensor({{.9, .06, .04}, {.7, .18, .12}, {.85, .05, .1}}, torch::kFloat64);
const torch::Tensor kNoise = torch::tensor(
    {{-.037, .026, -.018}, {-.074, .045, -.015}, {-.067, -.059, .073}}, torch::kFloat64);

TEST(ImportanceLoss, EqualsThePublishedValue) {  // L1, case 3 of tests/models/CASES.md
  Routing routing = make_routing(torch::zeros({4, 3}, torch::kFloat64), 1);
  routing.prob_TU = kGates;
  // The population variance; the unbiased one would give 0.058125.
  EXPECT_NEAR(value_of("importance", routing).item<double>(), 0.03875, 1e-12);
}

TEST(ImportanceLoss, GradientOfTheVariationIsTheClosedForm) {  // case 3
  torch::Tensor importance = kGates.sum(0, true).set_requires_grad(true);
  squared_variation(importance).sum().backward();
  const torch::Tensor expected = torch::tensor({{.118125, -.106875, -.069375}}, torch::kFloat64);
  EXPECT_LT((importance.grad() - expected).abs().max().item<double>(), 1e-12);
}

TEST(ImportanceLoss, GradientIsFiniteAtPerfectBalance) {
  torch::Tensor even = torch::ones({2, 5}, torch::kFloat64).set_requires_grad(true);
  const torch::Tensor value = squared_variation(even);
  value.sum().backward();
  EXPECT_EQ(value.abs().max().item<double>(), 0.0);
  EXPECT_EQ(even.grad().abs().max().item<double>(), 0.0);
}

TEST(ImportanceLoss, ScoresThatUnderflowEverywhereCountAsEven) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    Routing routing = make_routing(torch::zeros({4, 3}, dtype), 1);
    routing.prob_TU = torch::zeros({4, 3}, dtype).set_requires_grad(true);
    const torch::Tensor value = value_of("importance", routing);
    value.sum().backward();
    EXPECT_EQ(value.item<double>(), 0.0);
    EXPECT_EQ(routing.prob_TU.grad().abs().max().item<double>(), 0.0);
  }
}

TEST(ImportanceLoss, UnitsThatUnderflowAreClampedAlone) {
  torch::Tensor value = torch::tensor({{0.0, 2.0, 4.0}}, torch::kFloat64).set_requires_grad(true);
  squared_variation(value).sum().backward();
  torch::Tensor plain = value.detach().clone().set_requires_grad(true);
  (plain / plain.mean(1, true) - 1).square().mean(1).sum().backward();
  EXPECT_EQ(value.grad()[0][0].item<double>(), 0.0);
  EXPECT_LT((value.grad() - plain.grad())[0].slice(0, 1).abs().max().item<double>(), 1e-15);
}

TEST(ImportanceLoss, KeepsWhatIsNoNumber) {
  torch::Tensor value = torch::tensor({{1.0, std::nan(""), 2.0}, {1.0, 1.0, 1.0}}, torch::kFloat64)
                            .set_requires_grad(true);
  const torch::Tensor variation = squared_variation(value);
  variation.sum().backward();
  EXPECT_TRUE(std::isnan(variation[0].item<double>()));
  EXPECT_EQ(variation[1].item<double>(), 0.0);
  EXPECT_TRUE(value.grad()[0].isnan().all().item<bool>());
  EXPECT_EQ(value.grad()[1].abs().max().item<double>(), 0.0);
}

TEST(LoadLoss, EqualsThePublishedValue) {  // L1, case 3
  const Routing routing = noisy_routing(kLogits, kNoise, 2, 0.1);
  const torch::Tensor threshold =
      routing.noisy_TU.gather(1, routing.choice_TK.narrow(1, 1, 1)).flatten();
  EXPECT_TRUE(torch::allclose(threshold, torch::tensor({.086, .225, .173}, torch::kFloat64)));
  EXPECT_NEAR(value_of("load", routing).item<double>(), 0.48573847, 5e-9);
}

// Shazeer et al. 2017 leave the unit itself out of its threshold, which these numbers tell apart.
TEST(LoadLoss, ThresholdsWithoutTheUnitItselfWouldGiveAnotherValue) {  // case 3
  const torch::Tensor noisy = kLogits + kNoise;
  torch::Tensor load_1U = torch::zeros({1, 3}, torch::kFloat64);
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t u = 0; u < 3; ++u) {
      torch::Tensor others = noisy[t].clone();
      others[u] = -1e9;
      const torch::Tensor threshold = std::get<0>(others.topk(2))[1];
      load_1U[0][u] += 0.5 * torch::erfc((threshold - kLogits[t][u]) / (0.1 * std::sqrt(2.0)));
    }
  }
  EXPECT_NEAR(squared_variation(load_1U).item<double>(), 0.14493634, 5e-9);
}

TEST(BalanceLosses, EqualThePublishedValuesInFloat32) {  // L1
  Routing routing = make_routing(torch::zeros({4, 3}), 1);
  routing.prob_TU = kGates.to(torch::kFloat32);
  EXPECT_NEAR(value_of("importance", routing).item<double>(), 0.03874999, 5e-8);
  const Routing noisy =
      noisy_routing(kLogits.to(torch::kFloat32), kNoise.to(torch::kFloat32), 2, 0.1);
  EXPECT_NEAR(value_of("load", noisy).item<double>(), 0.485738645, 5e-7);
}

TEST(LoadLoss, EqualsThePlainLoop) {
  for (const int64_t k : {1, 2, 5}) {
    const torch::Tensor logits = some_numbers({40, 5}, 1), noise = some_numbers({40, 5}, 2) * 0.3;
    const Routing routing = noisy_routing(logits, noise, k, 0.2);
    EXPECT_NEAR(value_of("load", routing).item<double>(),
                testing::reference_load_loss(logits, logits + noise, k, 0.2), 1e-12);
    EXPECT_NEAR(value_of("importance", routing).item<double>(),
                testing::reference_importance_loss(logits), 1e-12);
  }
}

// Two groups of two units, of which a token visits one: e^2.5 + e^2.4 is more than e^3 + e^-2, so
// its units are 2 and 3. The second highest of its noisy logits is 2.5 all the same, and units are
// above it by chances of Phi(0.5), Phi(-4.5), Phi(0) and Phi(-0.1).
TEST(LoadLoss, ThresholdsAreThoseOfTheNoisyLogitsWhateverIsChosen) {
  const torch::Tensor logits = torch::tensor({{3.0, -2.0, 2.5, 2.4}}, torch::kFloat64);
  Routing routing = noisy_routing(logits, torch::zeros_like(logits), 2, 1.0);
  routing.choice_TK = top_k(limit_to_groups(logits.softmax(1), {2, 1, GroupScore::kTop2Sum}, 2), 2);
  ASSERT_EQ(testing::values(routing.choice_TK), (std::vector<int64_t>{2, 3}));
  const torch::Tensor load =
      torch::tensor({{0.69146246, 0.0000033977, 0.5, 0.46017216}}, torch::kFloat64);
  EXPECT_NEAR(value_of("load", routing).item<double>(), squared_variation(load).item<double>(),
              1e-7);
}

/// Noise whose standard deviation is learned.
Routing learned_routing(const torch::Tensor& logits, const torch::Tensor& noise,
                        const torch::Tensor& noise_std_TU) {
  Routing routing = noisy_routing(logits, noise * noise_std_TU, 2, 0.0);
  routing.noise_std_TU = noise_std_TU;
  return routing;
}

TEST(LoadLoss, LearnedDeviationsEqualThePlainLoopAndFiniteDifferences) {
  torch::Tensor logits = some_numbers({14, 4}, 3).set_requires_grad(true);
  torch::Tensor noise_std = (some_numbers({14, 4}, 5).square() + 0.2).set_requires_grad(true);
  const torch::Tensor noise = some_numbers({14, 4}, 4);
  EXPECT_NEAR(value_of("load", learned_routing(logits, noise, noise_std)).item<double>(),
              testing::reference_load_loss(logits, logits + noise * noise_std, 2, noise_std),
              1e-12);
  EXPECT_LT(
      gradient_error([&] { return value_of("load", learned_routing(logits, noise, noise_std)); },
                     {logits, noise_std}),
      1e-6);
}

TEST(LoadLoss, GradientsAreThoseOfFiniteDifferences) {
  torch::Tensor logits = some_numbers({14, 4}, 3).set_requires_grad(true);
  const torch::Tensor noise = some_numbers({14, 4}, 4) * 0.3;
  for (const char* name : {"importance", "load"}) {
    EXPECT_LT(gradient_error([&] { return value_of(name, noisy_routing(logits, noise, 2, 0.25)); },
                             {logits}),
              1e-6)
        << name;
  }
}

TEST(LoadLoss, NeedsNoise) { EXPECT_THROW(value_of("load", make_routing(kLogits, 2)), c10::Error); }

TEST(Scope, SumsSamplesGroupsOrEverything) {
  const auto self = make_self_communicator();
  const StepContext step = loss_step(5, 2);
  const TokenContext context = make_token_context(step, 0, 3);
  const torch::Tensor value = some_numbers({15, 2}, 5);
  const auto expect = [&](ScopeKind kind, const std::vector<int64_t>& offsets) {
    const Scope scope(kind, context, *self);
    const torch::Tensor sum = scope.sum(value);
    ASSERT_EQ(sum.size(0), static_cast<int64_t>(offsets.size()) - 1);
    double total = 0;
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      const int64_t length = offsets[i + 1] - offsets[i];
      const torch::Tensor expected = value.narrow(0, offsets[i], length).sum(0);
      const auto index = static_cast<int64_t>(i);
      EXPECT_TRUE(torch::allclose(sum[index], expected, 0, 1e-14));
      EXPECT_EQ(scope.tokens_S()[index].item<double>(), static_cast<double>(length));
      total += static_cast<double>(length * (index + 1));
    }
    const auto num_instances = static_cast<int64_t>(offsets.size()) - 1;
    const torch::Tensor value_S = torch::arange(1, num_instances + 1, torch::kFloat64);
    EXPECT_EQ(scope.weighted_sum(value_S).item<double>(), total);
  };
  expect(ScopeKind::kSequence, {0, 3, 6, 9, 12, 15});
  expect(ScopeKind::kGroup, {0, 6, 12, 15});
  expect(ScopeKind::kGlobal, {0, 15});
}

TEST(Scope, CountsSamplesWhereTheyDifferInLength) {
  const auto self = make_self_communicator();
  StepContext step = loss_step(3, 2);
  step.length_b = torch::tensor({2, 1, 4}, torch::kInt64);
  const TokenContext context = make_token_context(step, 0, 5);
  torch::Tensor value = some_numbers({7, 2}, 5).set_requires_grad(true);
  const auto expect = [&](ScopeKind kind, const std::vector<int64_t>& offsets,
                          const std::vector<double>& samples) {
    const Scope scope(kind, context, *self);
    const torch::Tensor sum = scope.sum(value);
    ASSERT_EQ(sum.size(0), static_cast<int64_t>(samples.size()));
    torch::Tensor expected_total = torch::zeros({2}, torch::kFloat64);
    for (size_t i = 0; i < samples.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      const int64_t length = offsets[i + 1] - offsets[i];
      EXPECT_TRUE(torch::allclose(sum[index], value.narrow(0, offsets[i], length).sum(0)));
      EXPECT_EQ(scope.tokens_S()[index].item<double>(), static_cast<double>(length));
      expected_total = expected_total + sum[index].detach() * samples[i];
    }
    const torch::Tensor total = scope.weighted_sum(sum.select(1, 0));
    EXPECT_NEAR(total.item<double>(), expected_total[0].item<double>(), 1e-14);
    value.mutable_grad().reset();
    total.backward();
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(value.grad()[offsets[i]][0].item<double>(), samples[i]);
    }
  };
  expect(ScopeKind::kSequence, {0, 2, 3, 7}, {1, 1, 1});
  expect(ScopeKind::kGroup, {0, 3, 7}, {2, 1});
  expect(ScopeKind::kGlobal, {0, 7}, {3});
}

TEST(Scope, HasNoInstancesWithoutSamplesButForTheGlobalOne) {
  const auto self = make_self_communicator();
  const StepContext step = loss_step(0, 2);
  const TokenContext context = make_token_context(step, 0, 3);
  torch::Tensor none = torch::zeros({0, 2}, torch::kFloat64).set_requires_grad(true);
  for (const ScopeKind kind : {ScopeKind::kSequence, ScopeKind::kGroup}) {
    const torch::Tensor sum = Scope(kind, context, *self).sum(none);
    EXPECT_EQ(sum.sizes(), (std::vector<int64_t>{0, 2}));
    EXPECT_TRUE(sum.requires_grad());
  }
  EXPECT_EQ(Scope(ScopeKind::kGlobal, context, *self).sum(none).sizes(),
            (std::vector<int64_t>{1, 2}));
}

struct StageSection {
  MoeOptions moe;
  static constexpr auto fields() { return std::tuple{field("moe", &StageSection::moe, "a stage")}; }
};

/// What is wrong with this loss beside this router.
std::string mistake_of(const std::string& loss, const std::string& router) {
  const std::vector<std::string> mistakes = testing::mistakes_of([&] {
    config::load_options_text<StageSection>(
        "moe: {router: {name: " + router + "}, losses: [{name: " + loss + "}]}", "test");
  });
  if (mistakes.empty()) return "";
  return mistakes.size() == 1 ? mistakes[0] : "not one mistake";
}

TEST(BalanceLosses, RefuseRoutersThatDoNotDecideByScores) {
  int64_t num_losses = 0;
  for (const config::MemberInfo* loss : members_of<BalanceLoss>().members()) {
    SCOPED_TRACE(loss->name);
    EXPECT_EQ(mistake_of(loss->name, "top_k"), "");
    for (const char* router : {"hash", "sinkhorn", "expert_choice", "forced"}) {
      EXPECT_THAT(mistake_of(loss->name, router),
                  ::testing::HasSubstr(std::string("moe.losses[0]: the ") + router +
                                       " router decides by other means"));
    }
    ++num_losses;
  }
  EXPECT_GE(num_losses, 5);
}

/// The loss of each of some copies of five tokens, one group each, then the gradients of each.
torch::Tensor loss_of_copies(const std::string& name, const torch::Tensor& logits_TU,
                             int64_t copies) {
  const int64_t num_tokens = logits_TU.size(0);
  torch::Tensor logits = logits_TU.repeat({copies, 1}).set_requires_grad(true);
  Routing routing = noisy_routing(logits, logits.detach() * 0.1, 2, 0.25);
  if (name == "load, learned") routing.noise_std_TU = logits.detach().abs() * 0.1 + 0.1;
  const auto self = make_self_communicator();
  const StepContext step = loss_step(num_tokens * copies, num_tokens);
  const Scope scope(ScopeKind::kGroup, make_token_context(step, 0, 1), *self);
  const torch::Tensor value_S =
      make_loss(name == "load, learned" ? "load" : name)->value_S(routing, scope);
  value_S.sum().backward();
  return torch::cat({value_S.detach().unsqueeze(1), logits.grad().reshape({copies, -1})}, 1);
}

TEST(BalanceLosses, EqualGroupsGiveEqualBitsWhereverAndHoweverManyTheyAre) {
  for (const std::string name : {"importance", "load", "load, learned", "switch",
                                 "switch, counts: first_choice", "z", "kl_uniform"}) {
    for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
      for (const int64_t num_units : {4, 6, 7, 33}) {
        const torch::Tensor logits = (some_numbers({5, num_units}, 8) * 3).to(dtype);
        const torch::Tensor one = loss_of_copies(name, logits, 1);
        for (const int64_t copies : {2, 3, 7, 20}) {
          EXPECT_TRUE(
              torch::equal(loss_of_copies(name, logits, copies), one.expand({copies, one.size(1)})))
              << name << ", " << copies << " of " << num_units << " units";
        }
      }
    }
  }
}

/// 7 samples of 3 tokens in groups of 2, of 4 units.
class LossRanks : public ::testing::TestWithParam<ScopeKind> {
 protected:
  static constexpr int64_t kSamples = 7, kRows = 3, kUnits = 4, kPerGroup = 2;

  struct Part {
    torch::Tensor logits_TU, noise_TU;
    int64_t num_samples;
  };
  struct Result {
    double share;
    torch::Tensor grad_TU;
  };

  /// A rank's share of the loss over all ranks' samples, and the gradient of its own logits.
  static Result run(const std::string& name, const Part& part, Communicator& world) {
    StepContext step = loss_step(part.num_samples, kPerGroup);
    step.samples_in_step = step.samples_in_micro = kSamples;
    const Scope scope(GetParam(), make_token_context(step, 0, kRows), world);
    torch::Tensor logits = part.logits_TU.clone().set_requires_grad(true);
    const Routing routing = noisy_routing(logits, part.noise_TU, 2, 0.25);
    const torch::Tensor value = make_loss(name)->value_S(routing, scope);
    const torch::Tensor share = scope.weighted_sum(value) / static_cast<double>(kSamples * kRows);
    share.backward();
    return {share.item<double>(), logits.grad()};
  }
};

INSTANTIATE_TEST_SUITE_P(Scopes, LossRanks,
                         ::testing::Values(ScopeKind::kSequence, ScopeKind::kGroup,
                                           ScopeKind::kGlobal));

TEST_P(LossRanks, SharesAndGradientsSumToThoseOfOneRank) {
  const std::vector<int64_t> samples_of_rank{4, 0, 3};
  const Part all{some_numbers({kSamples * kRows, kUnits}, 6),
                 some_numbers({kSamples * kRows, kUnits}, 7) * 0.3, kSamples};
  for (const std::string name :
       {"importance", "load", "switch", "switch, counts: first_choice", "z", "kl_uniform"}) {
    SCOPED_TRACE(name);
    const auto self = make_self_communicator();
    const Result expected = run(name, all, *self);
    EXPECT_GT(expected.grad_TU.abs().max().item<double>(), 1e-5);
    testing::run_ranks(3, [&](Communicator& world) {
      const auto rank = static_cast<size_t>(world.rank());
      int64_t first = 0;
      for (size_t r = 0; r < rank; ++r) first += samples_of_rank[r] * kRows;
      const int64_t num_tokens = samples_of_rank[rank] * kRows;
      const Result own = run(name,
                             {all.logits_TU.narrow(0, first, num_tokens),
                              all.noise_TU.narrow(0, first, num_tokens), samples_of_rank[rank]},
                             world);
      EXPECT_LT(
          (own.grad_TU - expected.grad_TU.narrow(0, first, num_tokens)).abs().sum().item<double>(),
          1e-14);
      torch::Tensor total = torch::tensor({own.share}, torch::kFloat64);
      all_reduce(world, total);
      EXPECT_NEAR(total.item<double>(), expected.share, 1e-14);
    });
  }
}

}  // namespace
}  // namespace shoal
