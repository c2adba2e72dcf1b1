#include "models/blocks/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"

// B images  S tokens  C width  H head width
namespace shoal {
namespace {

using testing::some_numbers;

Attention attention(int64_t width, int64_t heads, torch::Dtype dtype = torch::kFloat64) {
  Attention result(width, heads, torch::TensorOptions().dtype(dtype));
  testing::fill_parameters(*result);
  return result;
}

/// softmax(q kᵀ / sqrt(H)) v of one head and image, one number after another.
torch::Tensor plain_head(const torch::Tensor& q_SH, const torch::Tensor& k_SH,
                         const torch::Tensor& v_SH) {
  const int64_t S = q_SH.size(0);
  torch::Tensor y_SH = torch::zeros_like(q_SH);
  for (int64_t query = 0; query < S; ++query) {
    std::vector<double> share;
    double total = 0.0;
    for (int64_t key = 0; key < S; ++key) {
      const double logit = (q_SH[query] * k_SH[key]).sum().item<double>();
      share.push_back(std::exp(logit / std::sqrt(static_cast<double>(q_SH.size(1)))));
      total += share.back();
    }
    for (int64_t key = 0; key < S; ++key) {
      y_SH[query] += v_SH[key] * (share[static_cast<size_t>(key)] / total);
    }
  }
  return y_SH;
}

torch::Tensor plain_attention(const Attention& layer, const torch::Tensor& x_BSC, int64_t heads) {
  const int64_t C = x_BSC.size(2), H = C / heads;
  const torch::Tensor qkv = x_BSC.matmul(layer->qkv->weight.t()) + layer->qkv->bias;
  torch::Tensor joined = torch::zeros_like(x_BSC);
  for (int64_t image = 0; image < x_BSC.size(0); ++image) {
    for (int64_t head = 0; head < heads; ++head) {
      const auto part = [&](int64_t which) {
        return qkv[image].narrow(1, which * C + head * H, H);
      };
      joined[image].narrow(1, head * H, H).copy_(plain_head(part(0), part(1), part(2)));
    }
  }
  return joined.matmul(layer->proj->weight.t()) + layer->proj->bias;
}

TEST(Attention, IsTheSoftmaxOfQueriesTimesKeysOverValues) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = some_numbers({3, 5, 12}, 1);
  for (const int64_t heads : {1, 3, 4}) {
    const Attention layer = attention(12, heads);
    EXPECT_LT((layer->forward(x) - plain_attention(layer, x, heads)).abs().max().item<double>(),
              1e-13)
        << heads;
  }
}

TEST(Attention, GradientsAreThoseOfFiniteDifferences) {
  const Attention layer = attention(6, 2);
  const torch::Tensor x = some_numbers({2, 4, 6}, 1).requires_grad_();
  EXPECT_LT(testing::gradient_error(
                [&] { return layer->forward(x); },
                {x, layer->qkv->weight, layer->qkv->bias, layer->proj->weight, layer->proj->bias}),
            1e-6);
}

TEST(Attention, BiasesOfKeysHaveNoGradientButRounding) {
  const Attention layer = attention(6, 2);
  (layer->forward(some_numbers({2, 4, 6}, 1)) * some_numbers({2, 4, 6}, 2)).sum().backward();
  const torch::Tensor grad = layer->qkv->bias.grad().abs();
  EXPECT_LT(grad.narrow(0, 6, 6).max().item<double>(), 1e-14);
  EXPECT_GT(grad.narrow(0, 0, 6).max().item<double>(), 1e-3);
}

TEST(Attention, AnImagesResultAndGradientDoNotDependOnItsBatch) {
  const Attention layer = attention(12, 3, torch::kFloat32);
  const torch::Tensor x = some_numbers({5, 7, 12}, 1, torch::kFloat32).requires_grad_();
  const torch::Tensor whole = layer->forward(x);
  whole.sum().backward();
  const torch::Tensor grad = x.grad().clone();
  const torch::Tensor last = x.detach().narrow(0, 3, 2).clone().requires_grad_();
  const torch::Tensor part = layer->forward(last);
  part.sum().backward();
  constexpr double kFewRoundings = 1e-6;  // products of another size may round otherwise
  EXPECT_LT((part - whole.narrow(0, 3, 2)).abs().max().item<double>(), kFewRoundings);
  EXPECT_LT((last.grad() - grad.narrow(0, 3, 2)).abs().max().item<double>(), kFewRoundings);
}

TEST(Attention, TakesNoImagesForwardAndBackward) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
    const Attention layer = attention(6, 2, dtype);
    const torch::Tensor y = layer->forward(some_numbers({0, 4, 6}, 1, dtype));
    EXPECT_EQ(y.sizes(), (at::IntArrayRef{0, 4, 6}));
    y.sum().backward();
    for (const torch::Tensor& parameter : layer->parameters()) {
      ASSERT_TRUE(parameter.grad().defined());
      EXPECT_EQ(parameter.grad().abs().max().item<double>(), 0.0);
    }
  }
}

TEST(Attention, DrawsQueriesKeysAndValuesAsMatricesOfTheirOwn) {
  for (const Parameter& parameter : parameters_of(*attention(12, 3))) {
    if (!parameter.name.ends_with(".weight")) continue;
    EXPECT_EQ(parameter.init.kind, Init::Kind::kUniform) << parameter.name;
    EXPECT_DOUBLE_EQ(parameter.init.scale, std::sqrt(6.0 / 24)) << parameter.name;
  }
}

TEST(Attention, RefusesHeadsThatDoNotDivideTheWidth) { EXPECT_THROW(attention(8, 3), c10::Error); }

}  // namespace
}  // namespace shoal
