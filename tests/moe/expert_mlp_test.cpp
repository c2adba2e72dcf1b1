#include "moe/expert_mlp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/gradient_check.h"

// R rows  D width  H hidden width  u experts
namespace shoal {
namespace {

using testing::gradient_error;
using testing::some_numbers;
using Ids = std::vector<int64_t>;

ExpertWeights some_weights(int64_t u, int64_t width, int64_t hidden,
                           torch::TensorOptions options = torch::kFloat64, bool bias = true) {
  ExpertWeights weights;
  weights.fc1_weight = some_numbers({u, width, hidden}, 1, options).set_requires_grad(true);
  weights.fc2_weight = some_numbers({u, hidden, width}, 2, options).set_requires_grad(true);
  if (bias) weights.fc1_bias = some_numbers({u, hidden}, 3, options).set_requires_grad(true);
  if (bias) weights.fc2_bias = some_numbers({u, width}, 4, options).set_requires_grad(true);
  return weights;
}

std::vector<torch::Tensor> tensors_of(const ExpertWeights& weights) {
  std::vector<torch::Tensor> result{weights.fc1_weight, weights.fc2_weight};
  if (weights.fc1_bias.defined()) result.push_back(weights.fc1_bias);
  if (weights.fc2_bias.defined()) result.push_back(weights.fc2_bias);
  return result;
}

/// The same by torch's own operators, expert by expert.
torch::Tensor plain(const torch::Tensor& rows, const Ids& rows_u, const ExpertWeights& weights) {
  std::vector<torch::Tensor> parts;
  int64_t first = 0;
  for (size_t e = 0; e < rows_u.size(); ++e) {
    const auto expert = static_cast<int64_t>(e);
    const torch::Tensor x = rows.narrow(0, first, rows_u[e]);
    const torch::Tensor hidden =
        torch::gelu(x.matmul(weights.fc1_weight[expert]) + weights.fc1_bias[expert]);
    parts.push_back(hidden.matmul(weights.fc2_weight[expert]) + weights.fc2_bias[expert]);
    first += rows_u[e];
  }
  return torch::cat(parts);
}

void clear_grads(const std::vector<torch::Tensor>& tensors) {
  for (torch::Tensor tensor : tensors) tensor.mutable_grad().reset();
}

double relative_error(const torch::Tensor& value, const torch::Tensor& expected) {
  return ((value - expected).abs().max() / expected.abs().max()).item<double>();
}

TEST(ExpertMlp, EqualsTorchsOperators) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const Ids rows_u{5, 0, 17, 1};
    torch::Tensor rows = some_numbers({23, 12}, 9, dtype).set_requires_grad(true);
    const ExpertWeights weights = some_weights(4, 12, 33, dtype);
    std::vector<torch::Tensor> tensors = tensors_of(weights);
    tensors.push_back(rows);
    const torch::Tensor upstream = some_numbers({23, 12}, 10, dtype);

    const torch::Tensor expected = plain(rows, rows_u, weights);
    (expected * upstream).sum().backward();
    std::vector<torch::Tensor> expected_grads;
    for (const torch::Tensor& tensor : tensors) expected_grads.push_back(tensor.grad().clone());
    clear_grads(tensors);

    const torch::Tensor y = expert_mlp(rows, rows_u, weights, Activation::kGelu);
    (y * upstream).sum().backward();
    // Sums of up to 33 products, relative to the largest: some ten roundings.
    const double tolerance = dtype == torch::kFloat32 ? 2e-6 : 1e-14;
    EXPECT_LT(relative_error(y, expected), tolerance);
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_LT(relative_error(tensors[i].grad(), expected_grads[i]), tolerance) << i;
    }
  }
}

TEST(ExpertMlp, OneExpertIsADenseMlp) {  // P1
  const torch::Tensor rows = some_numbers({64, 24}, 11).set_requires_grad(true);
  const ExpertWeights weights = some_weights(1, 24, 48);
  std::vector<torch::Tensor> tensors = tensors_of(weights);
  tensors.push_back(rows);
  const torch::Tensor y = expert_mlp(rows, {64}, weights, Activation::kGelu);
  (y * y).sum().backward();
  std::vector<torch::Tensor> grads;
  for (const torch::Tensor& tensor : tensors) grads.push_back(tensor.grad().clone());
  clear_grads(tensors);
  const torch::Tensor dense =
      torch::addmm(weights.fc2_bias[0],
                   torch::gelu(torch::addmm(weights.fc1_bias[0], rows, weights.fc1_weight[0])),
                   weights.fc2_weight[0]);
  (dense * dense).sum().backward();
  EXPECT_LT(relative_error(y, dense), 1e-14);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_LT(relative_error(grads[i], tensors[i].grad()), 1e-13) << i;
  }
}

TEST(ExpertMlp, GradientsAreThoseOfFiniteDifferences) {
  const Ids rows_u{2, 0, 3};
  torch::Tensor rows = some_numbers({5, 3}, 5).set_requires_grad(true);
  for (const Activation activation :
       {Activation::kGelu, Activation::kGeluTanh, Activation::kRelu, Activation::kSilu}) {
    for (const bool bias : {true, false}) {
      const ExpertWeights weights = some_weights(3, 3, 4, torch::kFloat64, bias);
      std::vector<torch::Tensor> inputs = tensors_of(weights);
      inputs.push_back(rows);
      EXPECT_LT(
          gradient_error([&] { return expert_mlp(rows, rows_u, weights, activation); }, inputs),
          1e-7)
          << static_cast<int>(activation) << bias;
    }
  }
}

TEST(ExpertMlp, ExpertsWithoutRowsGetGradientsOfExactlyZero) {  // P3
  const Ids rows_u{162, 0, 2577, 446, 0, 83};
  const int64_t total = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
  // Memory that was in use holds numbers, which must not come back as gradients.
  { const torch::Tensor dirty = torch::full({6, 16, 24}, NAN); }
  const torch::Tensor rows = some_numbers({total, 16}, 6, torch::kFloat32);
  const ExpertWeights weights = some_weights(6, 16, 24, torch::kFloat32);
  expert_mlp(rows, rows_u, weights, Activation::kGelu).sum().backward();
  for (const torch::Tensor& tensor : tensors_of(weights)) {
    EXPECT_TRUE(tensor.grad().isfinite().all().item<bool>());
    for (const int64_t empty : {1, 4}) {
      EXPECT_EQ(tensor.grad()[empty].abs().max().item<double>(), 0.0);
    }
    for (const int64_t used : {0, 2, 3, 5}) {
      EXPECT_GT(tensor.grad()[used].abs().max().item<double>(), 0.0);
    }
  }
}

TEST(ExpertMlp, TakesNoRowsAndNoExperts) {
  const ExpertWeights weights = some_weights(2, 3, 4);
  torch::Tensor rows = torch::empty({0, 3}, torch::kFloat64).set_requires_grad(true);
  expert_mlp(rows, {0, 0}, weights, Activation::kRelu).sum().backward();
  EXPECT_EQ(weights.fc1_weight.grad().abs().max().item<double>(), 0.0);
  EXPECT_EQ(weights.fc2_bias.grad().abs().max().item<double>(), 0.0);
  EXPECT_EQ(rows.grad().sizes(), (Ids{0, 3}));

  const ExpertWeights none = some_weights(0, 3, 4);
  const torch::Tensor y = expert_mlp(rows, {}, none, Activation::kRelu);
  EXPECT_TRUE(y.requires_grad());
  y.sum().backward();
  EXPECT_EQ(none.fc1_weight.grad().sizes(), (Ids{0, 3, 4}));
}

TEST(ExpertMlp, RunsWithoutGradients) {
  const torch::NoGradGuard no_grad;
  const ExpertWeights weights = some_weights(3, 5, 7);
  const torch::Tensor rows = some_numbers({9, 5}, 8);
  const torch::Tensor y = expert_mlp(rows, {4, 3, 2}, weights, Activation::kGelu);
  EXPECT_LT(relative_error(y, plain(rows, {4, 3, 2}, weights)), 1e-14);
  EXPECT_FALSE(y.requires_grad());
}

TEST(ExpertMlp, RefusesWhatDoesNotFit) {
  const ExpertWeights weights = some_weights(2, 3, 4);
  const torch::Tensor rows = some_numbers({5, 3}, 8);
  EXPECT_THROW(expert_mlp(rows, {2, 2}, weights, Activation::kRelu), c10::Error);
  EXPECT_THROW(expert_mlp(rows, {2, 2, 1}, weights, Activation::kRelu), c10::Error);
  EXPECT_THROW(expert_mlp(rows.to(torch::kFloat32), {3, 2}, weights, Activation::kRelu),
               c10::Error);
}

}  // namespace
}  // namespace shoal
