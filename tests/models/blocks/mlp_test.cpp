#include "models/blocks/mlp.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "models/kernels/token_linear.h"
#include "models/vision/sparse_mlp_block.h"
#include "moe/experts/expert_mlp.h"
#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"

// B images  S tokens  C width
namespace shoal {
namespace {

using testing::fill_parameters;
using testing::gradient_error;
using testing::relative_error;
using testing::some_numbers;

torch::Tensor plain_mlp(const torch::Tensor& x, const Mlp& mlp, const char* approximate) {
  const torch::Tensor hidden = at::linear(x, mlp->fc1->weight, mlp->fc1->bias);
  return at::linear(at::gelu(hidden, approximate), mlp->fc2->weight, mlp->fc2->bias);
}

torch::Tensor plain_norm(const torch::Tensor& x, const LayerNorm& norm) {
  return at::layer_norm(x, {x.size(-1)}, norm->weight, norm->bias, kLayerNormEps);
}

/// Sparse-MLP eq. 8 and 9 as they stand.
torch::Tensor plain_block(const torch::Tensor& x, const MixerBlock& block,
                          const char* approximate) {
  const torch::Tensor n = plain_norm(x, block->token_norm).transpose(1, 2);
  const torch::Tensor y1 = x + plain_mlp(n, block->token_mlp, approximate).transpose(1, 2);
  return y1 + plain_mlp(plain_norm(y1, block->channel_norm), block->channel_mlp, approximate);
}

/// Gradients of a fixed function of `y`: of x, then of the block's parameters.
std::vector<torch::Tensor> gradients(const torch::Tensor& y, const torch::Tensor& x,
                                     const MixerBlock& block) {
  std::vector<torch::Tensor> inputs = block->parameters();
  inputs.insert(inputs.begin(), x);
  for (torch::Tensor& input : inputs) input.mutable_grad().reset();
  (y * some_numbers(y.sizes(), 9, y.options())).sum().backward();
  std::vector<torch::Tensor> result;
  for (const torch::Tensor& input : inputs) result.push_back(input.grad().clone());
  return result;
}

TEST(MixerBlock, EqualsTheEquationsForwardAndBackward) {
  for (const Gelu gelu : {Gelu::kErf, Gelu::kTanh}) {
    const char* approximate = gelu == Gelu::kErf ? "none" : "tanh";
    MixerBlock block(MixerBlockImpl::Sizes{70, 21, 40, 33, gelu}, torch::kFloat64);
    fill_parameters(*block);
    const torch::Tensor x = some_numbers({3, 70, 21}, 1).requires_grad_();
    const torch::Tensor y = block->forward(x), expected = plain_block(x, block, approximate);
    EXPECT_LT(relative_error(y, expected), 1e-12);
    const auto grads = gradients(y, x, block), expected_grads = gradients(expected, x, block);
    for (size_t i = 0; i < grads.size(); ++i) {
      EXPECT_LT(relative_error(grads[i], expected_grads[i]), 1e-11) << "input " << i;
    }
  }
}

TEST(MixerBlock, TakesNoImagesForwardAndBackward) {
  MixerBlock block(MixerBlockImpl::Sizes{5, 4, 6, 6, Gelu::kErf}, torch::kFloat64);
  fill_parameters(*block);
  const torch::Tensor x = some_numbers({0, 5, 4}, 1).requires_grad_();
  const torch::Tensor y = block->forward(x);
  EXPECT_EQ(y.sizes(), x.sizes());
  const auto grads = gradients(y, x, block);
  for (size_t i = 1; i < grads.size(); ++i) EXPECT_EQ(grads[i].abs().max().item<double>(), 0.0);
}

TEST(MixerBlock, RefusesAnotherNumberOfTokens) {
  const MixerBlock block(MixerBlockImpl::Sizes{5, 4, 6, 6, Gelu::kErf}, torch::kFloat64);
  EXPECT_THROW(block->forward(some_numbers({2, 6, 4}, 1)), c10::Error);
}

/// A Linear that takes its inputs in another order: no x Wᵀ + b of its own weight.
class ReversedLinearImpl : public LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  torch::Tensor forward(const torch::Tensor& x) const override {
    return LinearImpl::forward(x.flip(-1));
  }
  std::optional<DenseWeights> dense() const override { return std::nullopt; }
};

/// A layer that computes the same with its weight's columns reversed.
Linear reversed(const Linear& dense) {
  const auto layer = std::make_shared<ReversedLinearImpl>(
      dense->weight.size(1), dense->weight.size(0), dense->weight.options());
  const torch::NoGradGuard no_grad;
  layer->weight.copy_(dense->weight.flip(1));
  layer->bias.copy_(dense->bias);
  return Linear(std::static_pointer_cast<LinearImpl>(layer));
}

TEST(Mlp, TakesALinearThatIsNotDenseInEitherPlace) {
  Mlp dense(5, 7, Gelu::kErf, torch::kFloat64);
  fill_parameters(*dense);
  Mlp other(5, 7, Gelu::kErf, torch::kFloat64);
  other->fc1 = reversed(dense->fc1);
  other->fc2 = reversed(dense->fc2);
  const torch::Tensor x = some_numbers({3, 4, 5}, 1).requires_grad_();
  const torch::Tensor over_tokens = some_numbers({3, 5, 4}, 2);
  EXPECT_LT(relative_error(other->forward(x), dense->forward(x)), 1e-14);
  EXPECT_LT(relative_error(other->forward_over_tokens(over_tokens),
                           dense->forward_over_tokens(over_tokens)),
            1e-14);
  const std::vector<torch::Tensor> inputs{x, other->fc1->weight, other->fc1->bias,
                                          other->fc2->weight, other->fc2->bias};
  EXPECT_LT(gradient_error([&] { return other->forward(x); }, inputs), 1e-6);
}

TEST(TokenLinear, TakesALayerThatIsNotDense) {
  Linear dense(5, 6, torch::kFloat64);
  fill_parameters(*dense);
  const torch::Tensor x = some_numbers({3, 5, 4}, 1);
  const torch::Tensor y = token_linear(x, *reversed(dense));
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_LT(relative_error(y, token_linear(x, *dense)), 1e-14);
}

GatedMlp gated_mlp(bool has_bias) {
  GatedMlp mlp(MlpShape{6, 10, has_bias}, xavier_inits(6, 10), torch::kFloat64);
  fill_parameters(*mlp);
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
    EXPECT_LT(gradient_error([&] { return mlp->forward(x); }, inputs), 1e-6);
  }
}

}  // namespace
}  // namespace shoal
