#include <gtest/gtest.h>

#include <cmath>

#include "tests/moe/losses/loss_value.h"
#include "tests/moe/routing/make_routing.h"
#include "tests/support/gradient_check.h"

// T tokens  U units
namespace shoal {
namespace {

using testing::gradient_error;
using testing::make_routing;
using testing::some_numbers;
using testing::value_of;

Routing routing_by(const torch::Tensor& prob_TU) {
  Routing routing = make_routing(prob_TU.detach(), 1);
  routing.prob_TU = prob_TU;
  return routing;
}

/// sum over units of (1 / U) ln((1 / U) / mean score), over U.
double plain_kl(const torch::Tensor& prob_TU) {
  const int64_t num_tokens = prob_TU.size(0);
  const auto num_units = static_cast<double>(prob_TU.size(1));
  double divergence = 0.0;
  for (int64_t u = 0; u < prob_TU.size(1); ++u) {
    double mean = 0.0;
    for (int64_t t = 0; t < num_tokens; ++t) {
      mean += prob_TU[t][u].item<double>() / static_cast<double>(num_tokens);
    }
    divergence += std::log(1.0 / num_units / mean) / num_units;
  }
  return divergence / num_units;
}

TEST(KlUniformLoss, EqualsTheWorkedValuesAndTheirGradient) {
  torch::Tensor mean = torch::tensor({{.33, .28, .39}}, torch::kFloat64).set_requires_grad(true);
  const torch::Tensor value = value_of("kl_uniform", routing_by(mean));
  EXPECT_NEAR(value.item<double>(), .0030444416, 5e-11);
  EXPECT_NEAR(value.item<double>(), .0091333247 / 3, 5e-11);
  value.sum().backward();
  EXPECT_LT((mean.grad() + 1 / (9 * mean.detach())).abs().max().item<double>(), 1e-15);

  const torch::Tensor uneven = torch::tensor({{.01, .02, .97}}, torch::kFloat64);
  EXPECT_NEAR(value_of("kl_uniform", routing_by(uneven)).item<double>(), .5835350592, 5e-11);
}

TEST(KlUniformLoss, IsZeroAtBalance) {
  EXPECT_EQ(value_of("kl_uniform", make_routing(torch::zeros({6, 4}), 1)).item<double>(), 0.0);
  // Certain tokens that share the units evenly are as balanced as undecided ones.
  EXPECT_NEAR(value_of("kl_uniform", routing_by(torch::eye(4, torch::kFloat64))).item<double>(),
              0.0, 1e-16);
}

TEST(KlUniformLoss, EqualsThePlainLoop) {
  const torch::Tensor prob = (some_numbers({40, 5}, 1) * 3).softmax(1);
  EXPECT_NEAR(value_of("kl_uniform", routing_by(prob)).item<double>(), plain_kl(prob), 1e-15);
}

TEST(KlUniformLoss, IsFiniteWhereAllScoresOfAUnitAreZero) {
  torch::Tensor logits = torch::tensor({{0.f, 500.f}, {0.f, 400.f}}).set_requires_grad(true);
  const torch::Tensor value = value_of("kl_uniform", make_routing(logits, 1));
  EXPECT_GT(value.item<double>(), 20.0);
  EXPECT_LT(value.item<double>(), 25.0);
  value.sum().backward();
  EXPECT_TRUE(logits.grad().isfinite().all().item<bool>());
}

TEST(KlUniformLoss, GradientIsThatOfFiniteDifferences) {
  torch::Tensor logits = some_numbers({14, 4}, 2).set_requires_grad(true);
  EXPECT_LT(
      gradient_error([&] { return value_of("kl_uniform", make_routing(logits, 2)); }, {logits}),
      1e-6);
}

}  // namespace
}  // namespace shoal
