#include "models/decoder/causal_attention.h"

#include <ATen/ops/_fused_sdp_choice.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/gradient_check.h"
#include "tests/support/model_fill.h"
#include "tests/support/some_batch.h"

// B sequences  S tokens  C width  H head width
namespace shoal {
namespace {

using testing::some_numbers;
using testing::some_step;

constexpr int64_t kWidth = 12, kHeads = 6;

CausalAttention causal_attention(int64_t kv_heads, double dropout = 0.0, bool has_bias = true) {
  CausalAttention result(CausalAttentionImpl::Sizes{.width = kWidth,
                                                    .heads = kHeads,
                                                    .kv_heads = kv_heads,
                                                    .scale = 0.7,
                                                    .dropout = dropout,
                                                    .has_bias = has_bias,
                                                    .path = "blocks.0.attention"},
                         torch::kFloat64);
  testing::fill_parameters(*result);
  return result;
}

/// Attention of query heads to these heads of keys and values, one number after another.
torch::Tensor plain_causal_attention(const CausalAttention& layer, const torch::Tensor& x_BSC,
                                     int64_t kv_heads) {
  constexpr int64_t H = kWidth / kHeads;
  torch::Tensor qkv = x_BSC.matmul(layer->qkv->weight.t());
  if (layer->qkv->bias.defined()) qkv = qkv + layer->qkv->bias;
  torch::Tensor joined = torch::zeros_like(x_BSC);
  for (int64_t b = 0; b < x_BSC.size(0); ++b) {
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t key_head = head / (kHeads / kv_heads);
      const auto part = [&](int64_t first) { return qkv[b].narrow(1, first * H, H); };
      const torch::Tensor q = part(head), k = part(kHeads + key_head),
                          v = part(kHeads + kv_heads + key_head);
      for (int64_t query = 0; query < x_BSC.size(1); ++query) {
        const torch::Tensor logits = k.narrow(0, 0, query + 1).mv(q[query]) * 0.7;
        const torch::Tensor share = logits.exp() / logits.exp().sum();
        joined[b][query].narrow(0, head * H, H).copy_(v.narrow(0, 0, query + 1).t().mv(share));
      }
    }
  }
  const torch::Tensor y = joined.matmul(layer->proj->weight.t());
  return layer->proj->bias.defined() ? y + layer->proj->bias : y;
}

TEST(CausalAttention, IsTheSoftmaxOverATokenAndThoseBeforeIt) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = some_numbers({3, 5, kWidth}, 1);
  for (const int64_t kv_heads : {1, 2, 3, 6}) {
    for (const bool has_bias : {true, false}) {
      const CausalAttention layer = causal_attention(kv_heads, 0.0, has_bias);
      const torch::Tensor y = layer->forward(x, {}, some_step(3, true));
      EXPECT_LT((y - plain_causal_attention(layer, x, kv_heads)).abs().max().item<double>(), 1e-13)
          << kv_heads << has_bias;
    }
  }
}

TEST(CausalAttention, DecodesTokenByToken) {
  const torch::NoGradGuard no_grad;
  constexpr int64_t B = 3, S = 5, H = kWidth / kHeads;
  const torch::Tensor x = some_numbers({B, S, kWidth}, 1);
  for (const int64_t kv_heads : {1, 2, 3, 6}) {
    const CausalAttention layer = causal_attention(kv_heads);
    const torch::Tensor expected = plain_causal_attention(layer, x, kv_heads);
    const auto held = [&] { return torch::zeros({B, kv_heads, S, H}, x.options()); };
    KeyValueCache cache{{{held(), held()}}, std::vector<int64_t>(B, 0)};
    for (int64_t s = 0; s < S; ++s) {
      const DecodeStep step(cache, {torch::zeros({B, 1}, torch::kInt64)});
      const torch::Tensor y = layer->decode(x.narrow(1, s, 1), {}, cache.layers[0], step);
      EXPECT_LT((y - expected.narrow(1, s, 1)).abs().max().item<double>(), 1e-13)
          << kv_heads << " " << s;
      step.advance(cache);
    }
  }
}

TEST(CausalAttention, GradientsAreThoseOfFiniteDifferences) {
  const torch::Tensor x = some_numbers({2, 4, kWidth}, 1).requires_grad_();
  const Rotation rotation = rotation_at(torch::arange(4), kWidth / kHeads, 10.0, torch::kFloat64);
  for (const int64_t kv_heads : {2, 6}) {
    for (const double dropout : {0.0, 0.4}) {
      const CausalAttention layer = causal_attention(kv_heads, dropout);
      std::vector<torch::Tensor> inputs = layer->parameters();
      inputs.push_back(x);
      EXPECT_LT(testing::gradient_error(
                    [&] { return layer->forward(x, rotation, some_step(2, true)); }, inputs),
                1e-6)
          << kv_heads << " " << dropout;
    }
  }
}

// Of many draws: the mean over steps of what is dropped is what nothing is dropped of.
TEST(CausalAttention, DropoutLeavesTheMeanWhereItWas) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = some_numbers({2, 5, kWidth}, 1);
  const CausalAttention plain = causal_attention(2), dropping = causal_attention(2, 0.3);
  constexpr int64_t kSteps = 2000;
  torch::Tensor sum = torch::zeros_like(x);
  for (int64_t i = 0; i < kSteps; ++i) {
    StepContext step = some_step(2, true);
    step.step = i;
    sum += dropping->forward(x, {}, step);
  }
  const torch::Tensor expected = plain->forward(x, {}, some_step(2, true));
  // Deviations of a draw are below 1.
  EXPECT_LT((sum / kSteps - expected).abs().max().item<double>(), 5 / std::sqrt(kSteps));
  EXPECT_TRUE(dropping->forward(x, {}, some_step(2, false))
                  .equal(plain->forward(x, {}, some_step(2, false))));
}

TEST(CausalAttention, LaysItsHeadsOutForTheFusedKernelOfTheCpu) {
  constexpr int64_t B = 2, S = 8, N = 2, H = 32, kFlash = 1;
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const torch::Tensor qkv = torch::zeros({B, S, 3 * N * H}, dtype).requires_grad_();
    std::vector<torch::Tensor> part = qkv.split_with_sizes({N * H, N * H, N * H}, 2);
    for (torch::Tensor& heads : part) heads = split_heads(heads, H);
    EXPECT_EQ(at::_fused_sdp_choice(part[0], part[1], part[2], {}, 0.0, true), kFlash) << dtype;
  }
}

TEST(CausalAttention, RefusesHeadsThatDoNotDivide) {
  EXPECT_THROW(causal_attention(4), c10::Error);
}

}  // namespace
}  // namespace shoal
