#include "moe/experts/expert_mlp.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "runtime/kernels/bias_activation.h"
#include "tests/moe/experts/expert_kind.h"
#include "tests/support/gradient_check.h"

// R rows  D width  H hidden width  u experts
namespace shoal {
namespace {

using testing::ExpertKind;
using testing::gradient_error;
using testing::kExpertKinds;
using testing::relative_error;
using testing::some_numbers;
using testing::tensors_of;
using Ids = std::vector<int64_t>;

ExpertWeights some_weights(int64_t u, int64_t width, int64_t hidden,
                           torch::TensorOptions options = torch::kFloat64, ExpertKind kind = {}) {
  const auto some = [&](at::IntArrayRef sizes, int64_t seed) {
    return some_numbers(sizes, seed, options).set_requires_grad(true);
  };
  ExpertWeights weights;
  weights.fc1_weight = some({u, width, hidden}, 1);
  weights.fc2_weight = some({u, hidden, width}, 2);
  if (kind.bias) weights.fc1_bias = some({u, hidden}, 3);
  if (kind.bias) weights.fc2_bias = some({u, width}, 4);
  if (kind.gate) weights.gate_weight = some({u, width, hidden}, 12);
  if (kind.gate && kind.bias) weights.gate_bias = some({u, hidden}, 13);
  return weights;
}

/// One expert with GELU by torch's own operators.
torch::Tensor plain_expert(const torch::Tensor& x, const ExpertWeights& weights, int64_t expert) {
  const auto layer = [&](const torch::Tensor& in, const torch::Tensor& weight,
                         const torch::Tensor& bias) {
    const torch::Tensor product = in.matmul(weight[expert]);
    return bias.defined() ? product + bias[expert] : product;
  };
  const torch::Tensor first = layer(x, weights.fc1_weight, weights.fc1_bias);
  const torch::Tensor hidden =
      weights.gate_weight.defined()
          ? torch::gelu(layer(x, weights.gate_weight, weights.gate_bias)) * first
          : torch::gelu(first);
  return layer(hidden, weights.fc2_weight, weights.fc2_bias);
}

/// All of them, one by one.
torch::Tensor plain(const torch::Tensor& rows, const Ids& rows_u, const ExpertWeights& weights) {
  std::vector<torch::Tensor> parts;
  int64_t first = 0;
  for (size_t e = 0; e < rows_u.size(); ++e) {
    parts.push_back(
        plain_expert(rows.narrow(0, first, rows_u[e]), weights, static_cast<int64_t>(e)));
    first += rows_u[e];
  }
  return torch::cat(parts);
}

void clear_grads(const std::vector<torch::Tensor>& tensors) {
  for (torch::Tensor tensor : tensors) tensor.mutable_grad().reset();
}

/// Expects the values and gradients of torch's operators, within the largest relative error.
void expect_plain(const torch::Tensor& rows, const Ids& rows_u, const ExpertWeights& weights,
                  double tolerance) {
  std::vector<torch::Tensor> tensors = tensors_of(weights);
  tensors.push_back(rows);
  const torch::Tensor upstream = some_numbers(rows.sizes(), 10, rows.options());
  const torch::Tensor expected = plain(rows, rows_u, weights);
  (expected * upstream).sum().backward();
  std::vector<torch::Tensor> expected_grads;
  for (const torch::Tensor& tensor : tensors) expected_grads.push_back(tensor.grad().clone());
  clear_grads(tensors);

  const torch::Tensor y = expert_mlp(rows, rows_u, weights, Activation::kGelu);
  (y * upstream).sum().backward();
  EXPECT_LT(relative_error(y, expected), tolerance);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_LT(relative_error(tensors[i].grad(), expected_grads[i]), tolerance) << i;
  }
}

TEST(ExpertMlp, EqualsTorchsOperators) {
  for (const ExpertKind kind : kExpertKinds) {
    for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
      const torch::Tensor rows = some_numbers({23, 12}, 9, dtype).set_requires_grad(true);
      // Sums of up to 33 products, relative to the largest: some ten roundings.
      expect_plain(rows, {5, 0, 17, 1}, some_weights(4, 12, 33, dtype, kind),
                   dtype == torch::kFloat32 ? 2e-6 : 1e-14);
    }
  }
}

TEST(ExpertMlp, OneExpertIsADenseMlp) {  // P1
  for (const ExpertKind kind : kExpertKinds) {
    const torch::Tensor rows = some_numbers({64, 24}, 11).set_requires_grad(true);
    expect_plain(rows, {64}, some_weights(1, 24, 48, torch::kFloat64, kind), 1e-13);
  }
}

TEST(ExpertMlp, GradientsAreThoseOfFiniteDifferences) {
  const Ids rows_u{2, 0, 3};
  torch::Tensor rows = some_numbers({5, 3}, 5).set_requires_grad(true);
  for (size_t i = 0; i < kEnumWords<Activation>.size(); ++i) {
    const auto activation = static_cast<Activation>(i);
    for (const ExpertKind kind : kExpertKinds) {
      const ExpertWeights weights = some_weights(3, 3, 4, torch::kFloat64, kind);
      std::vector<torch::Tensor> inputs = tensors_of(weights);
      inputs.push_back(rows);
      const auto run = [&] { return expert_mlp(rows, rows_u, weights, activation); };
      EXPECT_LT(gradient_error(run, inputs), 1e-7)
          << enum_name(activation) << (kind.gate ? ", gate" : "") << (kind.bias ? ", bias" : "");
    }
  }
}

TEST(ExpertMlp, RowsWithoutGradientsChangeNoWeightGradient) {
  for (const ExpertKind kind : kExpertKinds) {
    const ExpertWeights weights = some_weights(2, 3, 4, torch::kFloat64, kind);
    torch::Tensor rows = some_numbers({5, 3}, 5).set_requires_grad(true);
    expert_mlp(rows, {2, 3}, weights, Activation::kSilu).sum().backward();
    std::vector<torch::Tensor> grads;
    for (const torch::Tensor& tensor : tensors_of(weights)) grads.push_back(tensor.grad().clone());
    clear_grads(tensors_of(weights));
    expert_mlp(rows.detach(), {2, 3}, weights, Activation::kSilu).sum().backward();
    for (size_t i = 0; i < grads.size(); ++i) {
      EXPECT_TRUE(torch::equal(tensors_of(weights)[i].grad(), grads[i])) << i;
    }
  }
}

TEST(ExpertMlp, ExpertsWithoutRowsGetGradientsOfExactlyZero) {  // P3
  const Ids rows_u{162, 0, 2577, 446, 0, 83};
  const int64_t total = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
  // Memory that was in use holds numbers, which must not come back as gradients.
  { const torch::Tensor dirty = torch::full({6, 16, 24}, NAN); }
  const torch::Tensor rows = some_numbers({total, 16}, 6, torch::kFloat32);
  for (const bool gate : {false, true}) {
    const ExpertWeights weights = some_weights(6, 16, 24, torch::kFloat32, {true, gate});
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
}

TEST(ExpertMlp, TakesNoRowsAndNoExperts) {
  for (const bool gate : {false, true}) {
    const ExpertWeights weights = some_weights(2, 3, 4, torch::kFloat64, {true, gate});
    torch::Tensor rows = torch::empty({0, 3}, torch::kFloat64).set_requires_grad(true);
    expert_mlp(rows, {0, 0}, weights, Activation::kRelu).sum().backward();
    for (const torch::Tensor& tensor : tensors_of(weights)) {
      EXPECT_EQ(tensor.grad().abs().max().item<double>(), 0.0);
    }
    EXPECT_EQ(rows.grad().sizes(), (Ids{0, 3}));

    const ExpertWeights none = some_weights(0, 3, 4, torch::kFloat64, {true, gate});
    const torch::Tensor y = expert_mlp(rows, {}, none, Activation::kRelu);
    EXPECT_TRUE(y.requires_grad());
    y.sum().backward();
    EXPECT_EQ(none.fc1_weight.grad().sizes(), (Ids{0, 3, 4}));
  }
}

TEST(ExpertMlp, IsTheSameOnSeveralThreads) {
  const int before = at::get_num_threads();
  for (const int threads : {2, 3, 4}) {
    at::set_num_threads(threads);
    // Even shares for two and three, uneven ones, fewer experts than threads.
    for (const Ids& rows_u : {Ids{8, 8, 0, 8, 8, 8, 8}, Ids{5, 0, 17, 1}, Ids{20, 21}}) {
      const int64_t total = std::accumulate(rows_u.begin(), rows_u.end(), int64_t{0});
      for (const ExpertKind kind : kExpertKinds) {
        const auto u = static_cast<int64_t>(rows_u.size());
        const ExpertWeights weights = some_weights(u, 12, 33, torch::kFloat64, kind);
        const torch::Tensor rows = some_numbers({total, 12}, 9).set_requires_grad(true);
        expect_plain(rows, rows_u, weights, 1e-14);
        const torch::NoGradGuard no_grad;
        const torch::Tensor y = expert_mlp(rows, rows_u, weights, Activation::kGelu);
        EXPECT_LT(relative_error(y, plain(rows, rows_u, weights)), 1e-14);
      }
    }
  }
  at::set_num_threads(before);
}

TEST(ExpertMlp, RunsWithoutGradients) {
  const torch::NoGradGuard no_grad;
  for (const ExpertKind kind : kExpertKinds) {
    const ExpertWeights weights = some_weights(3, 5, 7, torch::kFloat64, kind);
    const torch::Tensor rows = some_numbers({9, 5}, 8);
    const torch::Tensor y = expert_mlp(rows, {4, 3, 2}, weights, Activation::kGelu);
    EXPECT_LT(relative_error(y, plain(rows, {4, 3, 2}, weights)), 1e-14);
    EXPECT_FALSE(y.requires_grad());
  }
}

TEST(ExpertMlp, RefusesWhatDoesNotFit) {
  const ExpertWeights weights = some_weights(2, 3, 4);
  const torch::Tensor rows = some_numbers({5, 3}, 8);
  EXPECT_THROW(expert_mlp(rows, {2, 2}, weights, Activation::kRelu), c10::Error);
  EXPECT_THROW(expert_mlp(rows, {2, 2, 1}, weights, Activation::kRelu), c10::Error);
  EXPECT_THROW(expert_mlp(rows.to(torch::kFloat32), {3, 2}, weights, Activation::kRelu),
               c10::Error);
  ExpertWeights gated = some_weights(2, 3, 4, torch::kFloat64, {true, true});
  gated.gate_bias.reset();
  EXPECT_THROW(expert_mlp(rows, {3, 2}, gated, Activation::kRelu), c10::Error);
  gated = some_weights(2, 3, 4, torch::kFloat64, {true, true});
  gated.gate_weight = some_numbers({2, 3, 5}, 1);
  EXPECT_THROW(expert_mlp(rows, {3, 2}, gated, Activation::kRelu), c10::Error);
}

}  // namespace
}  // namespace shoal
