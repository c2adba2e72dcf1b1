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

double plain_z(const torch::Tensor& logits_TU) {
  double loss = 0.0;
  for (int64_t t = 0; t < logits_TU.size(0); ++t) {
    double sum = 0.0;
    for (int64_t u = 0; u < logits_TU.size(1); ++u) sum += std::exp(logits_TU[t][u].item<double>());
    loss += std::log(sum) * std::log(sum) / static_cast<double>(logits_TU.size(0));
  }
  return loss;
}

TEST(ZLoss, EqualsThePlainLoop) {  // L2
  const torch::Tensor logits =
      torch::tensor({{.11, .2, .1, .3}, {.3, .4, .11, .1}, {.11, .1, .6, .5}, {.1, .11, .7, .8}},
                    torch::kFloat64);
  EXPECT_NEAR(value_of("z", make_routing(logits, 2)).item<double>(), plain_z(logits), 1e-14);
  const torch::Tensor more = some_numbers({40, 5}, 1) * 4;
  EXPECT_NEAR(value_of("z", make_routing(more, 1)).item<double>(), plain_z(more), 1e-13);
}

TEST(ZLoss, OfEqualLogitsIsTheSquaredLogarithmOfTheirNumber) {
  const double value =
      value_of("z", make_routing(torch::zeros({6, 8}, torch::kFloat64), 1)).item<double>();
  EXPECT_NEAR(value, std::log(8.0) * std::log(8.0), 1e-15);
}

TEST(ZLoss, LooksAtTheLogitsWithoutNoise) {
  Routing routing = make_routing(some_numbers({6, 3}, 2), 1);
  const double before = value_of("z", routing).item<double>();
  routing.noisy_TU = routing.logits_TU + 5;
  EXPECT_EQ(value_of("z", routing).item<double>(), before);
}

TEST(ZLoss, IsFiniteForLogitsWhoseExponentialsAreNot) {
  EXPECT_FLOAT_EQ(value_of("z", make_routing(torch::full({2, 1}, 1000.0), 1)).item<float>(), 1e6f);
}

TEST(ZLoss, GradientIsThatOfFiniteDifferences) {
  torch::Tensor logits = some_numbers({14, 4}, 3).set_requires_grad(true);
  EXPECT_LT(gradient_error([&] { return value_of("z", make_routing(logits, 2)); }, {logits}), 1e-6);
}

}  // namespace
}  // namespace shoal
