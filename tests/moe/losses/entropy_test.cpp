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

TEST(EntropyLoss, IsTheMeanEntropyOfTheScores) {
  const torch::Tensor prob = torch::tensor({{.5, .25, .25}, {.2, .2, .6}}, torch::kFloat64);
  const double expected =
      (0.5 * std::log(2.0) + 0.5 * std::log(4.0) - 0.4 * std::log(0.2) - 0.6 * std::log(0.6)) / 2;
  EXPECT_NEAR(value_of("entropy", make_routing(prob.log(), 1)).item<double>(), expected, 1e-15);
  const torch::Tensor even = torch::zeros({6, 8}, torch::kFloat64);
  EXPECT_NEAR(value_of("entropy", make_routing(even, 1)).item<double>(), std::log(8.0), 1e-15);
}

TEST(EntropyLoss, HasItsGradientAndIsFiniteForSureTokens) {
  const torch::Tensor logits = some_numbers({7, 4}, 3).requires_grad_();
  EXPECT_LT(gradient_error([&] { return value_of("entropy", make_routing(logits, 2)); }, {logits}),
            1e-7);
  const torch::Tensor sure =
      torch::tensor({{0.0, -2000.0}, {1000.0, 0.0}}, torch::kFloat64).requires_grad_();
  const torch::Tensor value = value_of("entropy", make_routing(sure, 1));
  value.sum().backward();
  EXPECT_EQ(value.item<double>(), 0.0);
  EXPECT_TRUE(sure.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace shoal
