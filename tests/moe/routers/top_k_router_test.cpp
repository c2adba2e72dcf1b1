#include "moe/routers/top_k.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/random/random.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/support/collected_problems.h"
#include "tests/support/gradient_check.h"

// T tokens  D width  U units  K choices
namespace shoal {
namespace {

using testing::CollectedProblems;
using ::testing::ElementsAre;
using testing::gradient_error;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::some_numbers;
using testing::values;

constexpr int64_t kWidth = 5, kUnits = 4, kRows = 3;

StepContext step_at(std::vector<int64_t> samples, bool training = true) {
  StepContext step;
  step.seed = 7;
  step.step = 11;
  step.training = training;
  step.sample_b = torch::tensor(samples, torch::kInt64);
  step.samples_per_group = 2;
  return step;
}

TopKRouter make_router(const ScoreOptions& options, at::ScalarType dtype = torch::kFloat64) {
  TopKRouter router(options, {kWidth, kUnits, torch::TensorOptions().dtype(dtype)});
  torch::NoGradGuard no_grad;
  router.parameters()[0].copy_(some_numbers({kWidth, kUnits}, 21));
  return router;
}

torch::Tensor tokens(int64_t samples) { return some_numbers({samples * kRows, kWidth}, 22); }

TEST(TopKRouter, EvaluationIsSoftmaxThenTopKWithoutNoise) {
  TopKRouter router = make_router({2, RouterNoise::kGaussian, {}});
  const StepContext step = step_at({0, 1}, false);
  const torch::Tensor x = tokens(2);
  const Routing routing = router.route(x, make_token_context(step, 1, kRows));
  const torch::Tensor prob = x.matmul(router.parameters()[0]).softmax(1);
  const auto [weight, unit] = prob.topk(2, 1);
  EXPECT_TRUE(torch::equal(routing.unit_TK, unit));
  EXPECT_TRUE(torch::allclose(routing.weight_TK, weight, 0, 1e-15));
  EXPECT_TRUE(torch::allclose(routing.prob_TU, prob, 0, 1e-15));
  EXPECT_EQ(routing.noise_std, 0.0);
  EXPECT_EQ(routing.group_offsets, (std::vector<int64_t>{0, 6}));
}

TEST(TopKRouter, NoiseHasADeviationOfOneOverUnits) {
  TopKRouter router = make_router({2, RouterNoise::kGaussian, {}});
  EXPECT_TRUE(router.has_noise());
  std::vector<int64_t> samples(2000);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int64_t>(i);
  const StepContext step = step_at(samples);
  const Routing routing = router.route(tokens(2000), make_token_context(step, 1, kRows));
  const torch::Tensor noise = routing.noisy_TU - routing.logits_TU;
  // 24,000 draws: the standard error of the deviation is 0.0011, of the mean 0.0016.
  EXPECT_NEAR(noise.std().item<double>(), 0.25, 0.005);
  EXPECT_NEAR(noise.mean().item<double>(), 0.0, 0.007);
  EXPECT_EQ(routing.noise_std, 0.25);
}

TEST(TopKRouter, NoiseDependsOnTheTokenAndNotOnItsNeighbours) {
  TopKRouter router = make_router({2, RouterNoise::kGaussian, {}});
  const torch::Tensor x = tokens(4);
  const StepContext all = step_at({4, 5, 6, 7}), some = step_at({6, 7});
  const Routing whole = router.route(x, make_token_context(all, 1, kRows));
  const Routing part = router.route(x.narrow(0, 6, 6), make_token_context(some, 1, kRows));
  EXPECT_TRUE(torch::equal(whole.unit_TK.narrow(0, 6, 6), part.unit_TK));
  const torch::Tensor noise = (whole.noisy_TU - whole.logits_TU).narrow(0, 6, 6);
  EXPECT_TRUE(torch::allclose(noise, part.noisy_TU - part.logits_TU, 0, 1e-14));
}

TEST(TopKRouter, NoiseDiffersByLayerStepSampleAndView) {
  TopKRouter router = make_router({2, RouterNoise::kGaussian, {}});
  const torch::Tensor x = tokens(1);
  const auto noise = [&](const StepContext& step, uint64_t layer) {
    const Routing routing = router.route(x, make_token_context(step, layer, kRows));
    return (routing.noisy_TU - routing.logits_TU).clone();
  };
  const torch::Tensor base = noise(step_at({3}), 1);
  StepContext later = step_at({3}), other_view = step_at({3}), first_view = step_at({3});
  later.step = 12;
  other_view.view_b = torch::tensor({int64_t{1}});
  first_view.view_b = torch::tensor({int64_t{0}});
  EXPECT_TRUE(torch::equal(base, noise(step_at({3}), 1)));
  EXPECT_TRUE(torch::equal(base, noise(first_view, 1)));
  for (const torch::Tensor& other :
       {noise(step_at({4}), 1), noise(step_at({3}), 2), noise(later, 1), noise(other_view, 1)}) {
    EXPECT_GT((base - other).abs().min().item<double>(), 1e-9);
  }
}

TEST(TopKRouter, CombineWeightsFollowTheRule) {
  // Scores of one token: softmax of ln(1, 2, 4, 3) is (.1, .2, .4, .3).
  const torch::Tensor logits = torch::tensor({{1.0, 2.0, 4.0, 3.0}}, torch::kFloat64).log();
  const torch::Tensor score = logits.softmax(1);
  const torch::Tensor unit = torch::tensor({{2, 3}});
  const auto weight = [&](Normalise normalise) {
    return combine_weights(score, logits, unit, normalise);
  };
  const auto expect = [](const torch::Tensor& value, double first, double second) {
    EXPECT_NEAR(value[0][0].item<double>(), first, 1e-15);
    EXPECT_NEAR(value[0][1].item<double>(), second, 1e-15);
  };
  expect(weight(Normalise::kNone), 0.4, 0.3);
  expect(weight(Normalise::kSum), 4.0 / 7, 3.0 / 7);
  expect(weight(Normalise::kTopkSoftmax), 4.0 / 7, 3.0 / 7);
}

TEST(TopKRouter, TopkSoftmaxOfTheGoldenLogitsIsKnown) {
  // Of the choices (.30, .20) of token 0 the unnormalised and the normalised first weight differ.
  const torch::Tensor logits = torch::tensor({{.11, .2, .1, .3}}, torch::kFloat64);
  const torch::Tensor unit = torch::tensor({{3, 1}});
  const torch::Tensor weight =
      combine_weights(logits.softmax(1), logits, unit, Normalise::kTopkSoftmax);
  EXPECT_NEAR(weight[0][1].item<double>(), 0.475021, 5e-7);
}

TEST(TopKRouter, GradientsAreThoseOfFiniteDifferences) {
  for (const Normalise normalise : {Normalise::kNone, Normalise::kTopkSoftmax, Normalise::kSum}) {
    TopKRouter router = make_router({2, RouterNoise::kGaussian, {normalise, false, 1.0}});
    torch::Tensor x = tokens(2).set_requires_grad(true);
    const StepContext step = step_at({0, 1});
    const auto all = [&] {
      const Routing routing = router.route(x, make_token_context(step, 1, kRows));
      return torch::cat({routing.weight_TK, routing.prob_TU, routing.noisy_TU}, 1);
    };
    EXPECT_LT(gradient_error(all, {x, router.parameters()[0]}), 1e-7);
  }
}

TEST(TopKRouter, ComputesInFloat32FromHalfPrecisionTokens) {
  TopKRouter router = make_router({1, RouterNoise::kNone, {}}, torch::kFloat32);
  const StepContext step = step_at({0, 1}, false);
  const Routing routing =
      router.route(tokens(2).to(torch::kBFloat16), make_token_context(step, 1, kRows));
  EXPECT_EQ(routing.logits_TU.scalar_type(), torch::kFloat32);
}

TEST(TopKRouter, TakesNoTokensAndKeepsTheGraph) {
  TopKRouter router = make_router({2, RouterNoise::kGaussian, {}});
  const StepContext step = step_at({});
  const Routing routing = router.route(tokens(0), make_token_context(step, 1, kRows));
  EXPECT_EQ(routing.group_offsets, (std::vector<int64_t>{0}));
  (routing.weight_TK.sum() + routing.prob_TU.sum()).backward();
  EXPECT_EQ(router.parameters()[0].grad().abs().max().item<double>(), 0.0);
}

std::vector<std::string> problems_in(const ScoreOptions& options) {
  CollectedProblems problems;
  options.validate(problems);
  TopKRouter(options, {kWidth, kUnits, torch::kFloat64}).check("router", problems);
  return problems.lines;
}

TEST(TopKRouter, OneUnitATokenRefusesNormalisedWeights) {  // R7
  EXPECT_THAT(problems_in({1, RouterNoise::kNone, {}}), IsEmpty());
  EXPECT_THAT(problems_in({1, RouterNoise::kNone, {Normalise::kTopkSoftmax, false, 1.0}}),
              ElementsAre(HasSubstr("weights.normalise: topk_softmax makes every weight 1")));
  EXPECT_THAT(problems_in({1, RouterNoise::kNone, {Normalise::kSum, true, 1.0}}),
              ElementsAre(HasSubstr("weights.normalise: sum makes every weight 1"),
                          HasSubstr("weights.renorm_after_drop: true makes every weight 1")));
  EXPECT_THAT(problems_in({2, RouterNoise::kNone, {Normalise::kSum, true, 1.0}}), IsEmpty());
}

TEST(TopKRouter, RefusesMoreUnitsATokenThanThereAre) {
  EXPECT_THAT(problems_in({5, RouterNoise::kNone, {}}),
              ElementsAre("router.k: 5 units per token, but there are only 4"));
}

TEST(TopKRouter, FirstWeightsHaveADeviationOfOneOverTheRootOfTheWidth) {
  TopKRouter router({}, {400, 50, torch::kFloat32});
  initialise(parameters_of(router, "router"), 3);
  EXPECT_NEAR(router.parameters()[0].std().item<double>(), 0.05, 0.001);
}

}  // namespace
}  // namespace shoal
