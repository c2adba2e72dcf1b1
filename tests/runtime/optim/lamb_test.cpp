#include "runtime/optim/lamb.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/optim/gradients.h"

namespace shoal {
namespace {

torch::Tensor matrix(std::initializer_list<double> values) {
  return torch::tensor(std::vector<double>(values), at::kDouble).view({2, 2});
}

torch::Tensor vector(std::initializer_list<double> values) {
  return torch::tensor(std::vector<double>(values), at::kDouble);
}

Parameter parameter(std::string name, const torch::Tensor& tensor, int64_t stacked_dims = 0) {
  return {std::move(name), tensor.clone().requires_grad_(), stacked_dims, {}, {}};
}

Lamb::Options worked_options() {
  Lamb::Options options;
  options.lr = 0.1;
  options.weight_decay = 0.1;
  return options;
}

void expect_close(const torch::Tensor& found, const torch::Tensor& expected) {
  EXPECT_LT((found.detach() - expected).abs().max().item<double>(), 1e-6) << found;
}

double norm_of(const std::vector<Parameter>& parameters) {
  return square_sums(parameters).sum().sqrt().item<double>();
}

/// The ratio by which a step of rate 0.1 scaled the update u.
double trust_of(const torch::Tensor& before, const torch::Tensor& after, const torch::Tensor& u) {
  return ((before - after).norm() / (0.1 * u.norm())).item<double>();
}

/// To a norm of 1, as the trainer does before a step.
void clip(const std::vector<Parameter>& parameters) {
  const double factor = std::max(1.0, norm_of(parameters));
  for (const Parameter& parameter : parameters) parameter.tensor.mutable_grad().div_(factor);
}

TEST(Lamb, GivesTheWorkedTwoSteps) {
  const std::vector<Parameter> parameters = {parameter("w", matrix({1, 2, 3, 4})),
                                             parameter("b", vector({0.5, -0.5}))};
  Lamb lamb(worked_options(), parameters);

  parameters[0].tensor.mutable_grad() = matrix({0.1, -0.2, 0.3, -0.4});
  parameters[1].tensor.mutable_grad() = vector({0.05, 0.05});
  EXPECT_NEAR(norm_of(parameters), 0.55226805, 1e-8);
  clip(parameters);
  lamb.step(0.1);
  const torch::Tensor first = parameters[0].tensor.detach().clone();
  expect_close(first, matrix({0.69491604, 2.22187988, 2.63944387, 4.16641025}));
  expect_close(parameters[1].tensor, vector({0.400002, -0.599998}));
  const torch::Tensor w = matrix({1, 2, 3, 4}), g1 = matrix({0.1, -0.2, 0.3, -0.4});
  EXPECT_NEAR(trust_of(w, first, g1 / (g1.abs() + 1e-6) + 0.1 * w), 2.77351580, 5e-9);

  parameters[0].tensor.mutable_grad() = matrix({2, 0, -1, 2});
  parameters[1].tensor.mutable_grad() = vector({0, -1});
  EXPECT_NEAR(norm_of(parameters), 3.16227766, 1e-8);
  clip(parameters);
  lamb.step(0.1);
  expect_close(parameters[0].tensor, matrix({0.29460564, 2.41909184, 2.55797817, 3.8636309}));
  expect_close(parameters[1].tensor, vector({0.33299807, -0.53695623}));
  const torch::Tensor g2 = matrix({2, 0, -1, 2}) / std::sqrt(10.0);
  const torch::Tensor m = (0.09 * g1 + 0.1 * g2) / (1 - 0.81);
  const torch::Tensor v = (0.000999 * g1 * g1 + 0.001 * g2 * g2) / (1 - 0.998001);
  const torch::Tensor u = m / (v.sqrt() + 1e-6) + 0.1 * first;
  EXPECT_NEAR(trust_of(first, parameters[0].tensor.detach(), u), 4.40337449, 5e-9);
}

// W and W/100 in one stack, equal gradients: ratios 2.77351580 and .02739987, never 1.94930698.
TEST(Lamb, StackedExpertsHaveOneTrustRatioEach) {
  const torch::Tensor w = matrix({1, 2, 3, 4});
  const std::vector<Parameter> parameters = {
      parameter("experts.*.w", torch::stack({w, w / 100}), /*stacked_dims=*/1)};
  Lamb lamb(worked_options(), parameters);
  const torch::Tensor g = matrix({0.1, -0.2, 0.3, -0.4});
  parameters[0].tensor.mutable_grad() = torch::stack({g, g});
  lamb.step(0.1);
  for (const auto& [unit, ratio] : {std::pair{0, 2.77351580}, {1, 0.02739987}}) {
    const torch::Tensor before = unit == 0 ? w : w / 100;
    const torch::Tensor u = g / (g.abs() + 1e-6) + 0.1 * before;
    expect_close(parameters[0].tensor[unit], before - 0.1 * ratio * u);
    EXPECT_NEAR(trust_of(before, parameters[0].tensor[unit].detach(), u), ratio, 5e-9);
  }
}

TEST(Lamb, AMatrixOfZerosHasTrustOne) {
  const std::vector<Parameter> parameters = {parameter("head", matrix({0, 0, 0, 0}))};
  Lamb lamb(worked_options(), parameters);
  parameters[0].tensor.mutable_grad() = matrix({1, -1, 1, -1});
  lamb.step(0.1);
  expect_close(parameters[0].tensor, matrix({-0.1, 0.1, -0.1, 0.1}));
}

TEST(Lamb, AMatrixWithoutGradientAndDecayStaysWhereItIs) {
  Lamb::Options options;
  options.always_adapt = true;
  const std::vector<Parameter> parameters = {parameter("w", matrix({1, 2, 3, 4}))};
  Lamb lamb(options, parameters);
  parameters[0].tensor.mutable_grad() = torch::zeros({2, 2}, at::kDouble);
  lamb.step(0.1);
  EXPECT_TRUE(parameters[0].tensor.equal(matrix({1, 2, 3, 4})));
}

}  // namespace
}  // namespace shoal
