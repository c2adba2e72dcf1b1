#include "models/blocks/mlp.h"

#include <gtest/gtest.h>

#include "moe/experts/expert_mlp.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"

namespace shoal {
namespace {

using testing::some_numbers;

GatedMlp gated_mlp(bool has_bias) {
  GatedMlp mlp(MlpShape{6, 10, has_bias}, xavier_inits(6, 10), torch::kFloat64);
  testing::fill_parameters(*mlp);
  return mlp;
}

TEST(GatedMlp, IsWhatAGatedExpertComputes) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = some_numbers({2, 4, 6}, 1);
  for (const bool has_bias : {true, false}) {
    const GatedMlp mlp = gated_mlp(has_bias);
    const auto stack = [](const torch::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      return (tensor.dim() == 2 ? tensor.t() : tensor).unsqueeze(0).contiguous();
    };
    const ExpertWeights expert{stack(mlp->fc1->weight),  stack(mlp->fc1->bias),
                               stack(mlp->fc2->weight),  stack(mlp->fc2->bias),
                               stack(mlp->gate->weight), stack(mlp->gate->bias)};
    const torch::Tensor expected = expert_mlp(x.view({8, 6}), {8}, expert, Activation::kSilu);
    EXPECT_LT((mlp->forward(x).view({8, 6}) - expected).abs().max().item<double>(), 1e-13);
  }
}

TEST(GatedMlp, GradientsAreThoseOfFiniteDifferences) {
  const torch::Tensor x = some_numbers({2, 4, 6}, 1).requires_grad_();
  for (const bool has_bias : {true, false}) {
    const GatedMlp mlp = gated_mlp(has_bias);
    std::vector<torch::Tensor> inputs = mlp->parameters();
    inputs.push_back(x);
    EXPECT_LT(testing::gradient_error([&] { return mlp->forward(x); }, inputs), 1e-6);
  }
}

}  // namespace
}  // namespace shoal
