#include "models/blocks/mixing_mlp.h"

#include <ATen/Parallel.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"

// B images  S tokens  C width
namespace shoal {
namespace {

using testing::fill_parameters;
using testing::gradient_error;
using testing::some_numbers;

struct Layer {
  LayerNorm norm;
  Mlp mlp;

  Layer(int64_t mixed, int64_t hidden, int64_t width, Gelu gelu,
        const torch::TensorOptions& options = torch::kFloat64)
      : norm(width, options), mlp(mixed, hidden, gelu, options) {
    fill_parameters(*norm);
    fill_parameters(*mlp);
  }
  std::vector<torch::Tensor> parameters() const {
    return {norm->weight,   norm->bias,       mlp->fc1->weight,
            mlp->fc1->bias, mlp->fc2->weight, mlp->fc2->bias};
  }
};

torch::Tensor plain_mlp(const torch::Tensor& x, const Mlp& mlp) {
  const torch::Tensor hidden = at::linear(x, mlp->fc1->weight, mlp->fc1->bias);
  const torch::Tensor activation = at::gelu(hidden, mlp->gelu() == Gelu::kErf ? "none" : "tanh");
  return at::linear(activation, mlp->fc2->weight, mlp->fc2->bias);
}

torch::Tensor plain_norm(const torch::Tensor& x, const LayerNorm& norm) {
  return at::layer_norm(x, {x.size(-1)}, norm->weight, norm->bias, 1e-6);
}

/// Sparse-MLP eq. 8 and 9 as they stand.
torch::Tensor reference(const torch::Tensor& x, const Layer& layer, bool over_tokens) {
  const torch::Tensor n = plain_norm(x, layer.norm);
  return over_tokens ? x + plain_mlp(n.transpose(1, 2), layer.mlp).transpose(1, 2)
                     : x + plain_mlp(n, layer.mlp);
}

torch::Tensor mix(const torch::Tensor& x, const Layer& layer, bool over_tokens) {
  return over_tokens ? mix_tokens(x, layer.norm, layer.mlp)
                     : mix_channels(x, layer.norm, layer.mlp);
}

double largest(const torch::Tensor& difference) {
  return difference.numel() == 0 ? 0.0 : difference.abs().max().item<double>();
}

/// x and the parameters' gradients of a fixed function of `y`.
std::vector<torch::Tensor> gradients(const torch::Tensor& y, const torch::Tensor& x,
                                     const Layer& layer) {
  std::vector<torch::Tensor> inputs = layer.parameters();
  inputs.push_back(x);
  for (torch::Tensor& input : inputs) input.mutable_grad().reset();
  (y * some_numbers(y.sizes(), 9, y.options())).sum().backward();
  std::vector<torch::Tensor> result;
  for (const torch::Tensor& input : inputs) result.push_back(input.grad().clone());
  return result;
}

TEST(MixingMlp, EqualsTheEquationsForwardAndBackward) {
  for (const bool over_tokens : {true, false}) {
    for (const Gelu gelu : {Gelu::kErf, Gelu::kTanh}) {
      // 3 * 70 rows: more than one tile of channels, the last one short.
      const int64_t S = 70, C = 21;
      const Layer layer(over_tokens ? S : C, 4096 / 10, C, gelu);
      const torch::Tensor x = some_numbers({3, S, C}, 1).requires_grad_();
      const torch::Tensor y = mix(x, layer, over_tokens), y0 = reference(x, layer, over_tokens);
      EXPECT_LT(largest(y - y0), 1e-12 * largest(y0));
      const auto grads = gradients(y, x, layer), grads0 = gradients(y0, x, layer);
      for (size_t i = 0; i < grads.size(); ++i) {
        EXPECT_LT(largest(grads[i] - grads0[i]), 1e-11 * largest(grads0[i])) << "input " << i;
      }
    }
  }
}

TEST(MixingMlp, GradientsAreThoseOfFiniteDifferences) {
  for (const bool over_tokens : {true, false}) {
    const Layer layer(over_tokens ? 5 : 4, 6, 4, Gelu::kErf);
    const torch::Tensor x = some_numbers({2, 5, 4}, 1).requires_grad_();
    std::vector<torch::Tensor> inputs = layer.parameters();
    inputs.push_back(x);
    EXPECT_LT(gradient_error([&] { return mix(x, layer, over_tokens); }, inputs), 1e-6);
  }
}

TEST(MixingMlp, Float32IsWithinRoundingOfFloat64) {
  for (const bool over_tokens : {true, false}) {
    const int64_t mixed = over_tokens ? 64 : 96;
    const Layer layer(mixed, 192, 96, Gelu::kErf);
    const Layer layer32(mixed, 192, 96, Gelu::kErf, torch::kFloat32);
    const torch::Tensor x = some_numbers({2, 64, 96}, 1);
    const torch::Tensor y = mix(x, layer, over_tokens);
    const torch::Tensor y32 = mix(x.to(torch::kFloat32), layer32, over_tokens);
    // Sums of up to 192 products of float32 roundings.
    EXPECT_LT(largest(y32.to(torch::kFloat64) - y), 2e-5 * largest(y));
  }
}

TEST(MixingMlp, IsTheSameWithoutGradients) {
  for (const bool over_tokens : {true, false}) {
    const Layer layer(over_tokens ? 10 : 7, 12, 7, Gelu::kErf);
    const torch::Tensor x = some_numbers({3, 10, 7}, 1);
    const torch::Tensor y = mix(x, layer, over_tokens);
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(torch::equal(mix(x, layer, over_tokens), y));
  }
}

TEST(MixingMlp, DependsOnTheNumberOfThreadsByRoundingOnly) {
  const int threads = at::get_num_threads();
  for (const bool over_tokens : {true, false}) {
    const Layer layer(over_tokens ? 70 : 21, 400, 21, Gelu::kErf);
    const torch::Tensor x = some_numbers({5, 70, 21}, 1).requires_grad_();
    std::vector<std::vector<torch::Tensor>> found;
    for (const int count : {1, 3}) {
      at::set_num_threads(count);
      found.push_back(gradients(mix(x, layer, over_tokens), x, layer));
    }
    for (size_t i = 0; i < found[0].size(); ++i) {
      EXPECT_LT(largest(found[0][i] - found[1][i]), 1e-12 * largest(found[0][i])) << "input " << i;
    }
  }
  at::set_num_threads(threads);
}

TEST(MixingMlp, TakesNoImagesForwardAndBackward) {
  for (const bool over_tokens : {true, false}) {
    const Layer layer(over_tokens ? 5 : 4, 6, 4, Gelu::kErf);
    const torch::Tensor x = some_numbers({0, 5, 4}, 1).requires_grad_();
    const torch::Tensor y = mix(x, layer, over_tokens);
    EXPECT_EQ(y.sizes(), x.sizes());
    for (const torch::Tensor& grad : gradients(y, x, layer)) EXPECT_EQ(largest(grad), 0.0);
  }
}

TEST(MixingMlp, RefusesAnMlpOfAnotherWidth) {
  const Layer layer(5, 6, 4, Gelu::kErf);
  EXPECT_THROW(mix_channels(some_numbers({2, 5, 4}, 1), layer.norm, layer.mlp), c10::Error);
  EXPECT_THROW(mix_tokens(some_numbers({2, 6, 4}, 1), layer.norm, layer.mlp), c10::Error);
}

}  // namespace
}  // namespace shoal
