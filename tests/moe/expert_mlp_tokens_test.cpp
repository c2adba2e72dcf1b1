#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "moe/expert_mlp.h"
#include "moe/gated_expert_bank.h"
#include "moe/score_router.h"
#include "runtime/random.h"
#include "tests/moe/small_layer.h"
#include "tests/support/counted_memory.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

// T tokens  A rows  D width  H hidden width  K choices  u experts
namespace shoal {
namespace {

using testing::CountedMemory;
using testing::gradient_error;
using testing::kPath;
using testing::step_of;

constexpr int64_t kExperts = 3, kWidth = 20, kHidden = 37;
// Sums of up to 37 products of bfloat16 values, each stage rounded once: a few roundings of the
// largest value.
constexpr double kNarrow = 8 * 0.00390625;

/// Sums of these do not cancel to less than what rounding leaves of their terms.
torch::Tensor noise(at::IntArrayRef sizes, uint64_t seed) {
  const torch::Tensor values = torch::empty(sizes, torch::kFloat64);
  fill_normal(values, Stream{seed});
  return values;
}

struct Kind {
  bool bias = true, gate = false;
};
constexpr Kind kKinds[] = {{true, false}, {false, false}, {true, true}, {false, true}};

ExpertWeights some_weights(Kind kind, torch::Dtype dtype) {
  const auto some = [&](at::IntArrayRef sizes, uint64_t seed) {
    return (noise(sizes, seed) * 0.3).to(dtype).set_requires_grad(true);
  };
  ExpertWeights weights;
  weights.fc1_weight = some({kExperts, kWidth, kHidden}, 1);
  weights.fc2_weight = some({kExperts, kHidden, kWidth}, 2);
  if (kind.bias) weights.fc1_bias = some({kExperts, kHidden}, 3);
  if (kind.bias) weights.fc2_bias = some({kExperts, kWidth}, 4);
  if (kind.gate) weights.gate_weight = some({kExperts, kWidth, kHidden}, 12);
  if (kind.gate && kind.bias) weights.gate_bias = some({kExperts, kHidden}, 13);
  return weights;
}

std::vector<torch::Tensor> tensors_of(const ExpertWeights& weights) {
  std::vector<torch::Tensor> result;
  for (const torch::Tensor& tensor : {weights.fc1_weight, weights.fc2_weight, weights.fc1_bias,
                                      weights.fc2_bias, weights.gate_weight, weights.gate_bias}) {
    if (tensor.defined()) result.push_back(tensor);
  }
  return result;
}

/// Seven rows of four tokens, one of which has none, and a padding row; the second expert has none.
TokenRows some_rows(torch::Dtype dtype) {
  TokenRows rows;
  rows.index = make_row_index(torch::tensor({0, 2, 3, -1, 0, 2, 2, 0}, torch::kInt64), 4);
  rows.weight_A = noise({8}, 21).to(dtype);
  rows.weight_A[1] = 0;  // a weight that underflowed still gets a gradient
  rows.weight_A.set_requires_grad(true);
  rows.rows_u = {4, 0, 4};
  return rows;
}

torch::Tensor step_by_step(const torch::Tensor& x, const TokenRows& rows,
                           const ExpertWeights& weights, Activation activation) {
  const torch::Tensor rows_AD = gather_rows(x, rows.index);
  return combine_rows(expert_mlp(rows_AD, rows.rows_u.rows_u(), weights, activation), rows.weight_A,
                      rows.index);
}

std::vector<torch::Tensor> results(const torch::Tensor& y, const std::vector<torch::Tensor>& of) {
  const torch::Tensor upstream = noise(y.sizes(), 10).to(y.scalar_type());
  (y * upstream).sum().backward();
  std::vector<torch::Tensor> result{y.detach()};
  for (torch::Tensor tensor : of) {
    result.push_back(tensor.grad().clone());
    tensor.mutable_grad().reset();
  }
  return result;
}

double relative_error(const torch::Tensor& value, const torch::Tensor& expected) {
  const double apart =
      (value.to(torch::kFloat64) - expected.to(torch::kFloat64)).abs().max().item<double>();
  return apart / std::max(expected.abs().max().item<double>(), 1e-30);
}

TEST(ExpertMlpOfTokens, EqualsItsThreeSteps) {
  for (const Kind kind : kKinds) {
    const ExpertWeights weights = some_weights(kind, torch::kFloat64);
    const TokenRows rows = some_rows(torch::kFloat64);
    const torch::Tensor x = noise({4, kWidth}, 5).set_requires_grad(true);
    std::vector<torch::Tensor> tensors = tensors_of(weights);
    tensors.insert(tensors.end(), {x, rows.weight_A});
    const auto expected = results(step_by_step(x, rows, weights, Activation::kSilu), tensors);
    const auto actual = results(expert_mlp_of_tokens(x, rows, weights, Activation::kSilu), tensors);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(relative_error(actual[i], expected[i]), 1e-14) << i << " gate " << kind.gate;
    }
    EXPECT_EQ(tensors.front().grad().defined(), false);
    EXPECT_EQ(expected[1][1].abs().max().item<double>(), 0.0);
    EXPECT_EQ(actual[1][1].abs().max().item<double>(), 0.0);
  }
}

TEST(ExpertMlpOfTokens, GradientsAreThoseOfFiniteDifferences) {
  for (const auto& [activation, name] : EnumNames<Activation>::names) {
    for (const Kind kind : kKinds) {
      const ExpertWeights weights = some_weights(kind, torch::kFloat64);
      const TokenRows rows = some_rows(torch::kFloat64);
      const torch::Tensor x = noise({4, kWidth}, 5).set_requires_grad(true);
      const std::vector<torch::Tensor> inputs{x, rows.weight_A, weights.fc2_weight};
      const auto run = [&, act = activation] {
        return expert_mlp_of_tokens(x, rows, weights, act);
      };
      EXPECT_LT(gradient_error(run, inputs), 1e-6) << name << (kind.gate ? ", gate" : "");
    }
  }
}

TEST(ExpertMlpOfTokens, TakesNoTokensAndNoRows) {
  const ExpertWeights weights = some_weights({}, torch::kFloat32);
  TokenRows rows;
  rows.index = make_row_index(torch::empty({0}, torch::kInt64), 0);
  rows.weight_A = torch::empty({0}).set_requires_grad(true);
  rows.rows_u = {0, 0, 0};
  const torch::Tensor x = torch::empty({0, kWidth}).set_requires_grad(true);
  expert_mlp_of_tokens(x, rows, weights, Activation::kGelu).sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(weights.fc1_weight.grad().abs().max().item<float>(), 0.0f);
}

// float32 weights of bfloat16 rows: gradients are float32, and as far off as rounding explains.
TEST(ExpertMlpOfTokens, NarrowRowsAreThoseOfFloat64ToRounding) {
  for (const Kind kind : kKinds) {
    for (const bool in_steps : {false, true}) {
      const torch::Tensor x = noise({4, kWidth}, 5).to(torch::kBFloat16);
      const auto run = [&](torch::Dtype compute, torch::Dtype master) {
        const ExpertWeights weights = some_weights(kind, master);
        const TokenRows rows = some_rows(master);
        const torch::Tensor own = x.to(compute).set_requires_grad(true);
        std::vector<torch::Tensor> tensors = tensors_of(weights);
        tensors.insert(tensors.end(), {own, rows.weight_A});
        const torch::Tensor y = in_steps
                                    ? step_by_step(own, rows, weights, Activation::kGelu)
                                    : expert_mlp_of_tokens(own, rows, weights, Activation::kGelu);
        EXPECT_EQ(y.scalar_type(), compute);
        return results(y, tensors);
      };
      const auto expected = run(torch::kFloat64, torch::kFloat64);
      const auto actual = run(torch::kBFloat16, torch::kFloat32);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LT(relative_error(actual[i], expected[i]), kNarrow) << i << " gate " << kind.gate;
        const bool is_row = i == 0 || i + 2 == actual.size();
        EXPECT_EQ(actual[i].scalar_type(), is_row ? torch::kBFloat16 : torch::kFloat32) << i;
      }
    }
  }
}

TEST(CombineRows, SumsNarrowRowsInFloat32) {
  // 1 + 256 * 2^-9: in bfloat16 each summand would be lost.
  const torch::Tensor rows_AD = torch::full({257, 3}, 1.0).to(torch::kBFloat16);
  torch::Tensor weight_A = torch::full({257}, 0.001953125);
  weight_A[0] = 1.0;
  const RowIndex index = make_row_index(torch::zeros({257}, torch::kInt64), 1);
  const torch::Tensor y = combine_rows(rows_AD, weight_A, index);
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(y[0][2].item<float>(), 1.5f);
}

/// What a layer of shape S1 keeps for its backward pass, over the least: tokens, what activations
/// are applied to.
double kept_over_least(torch::Dtype dtype, bool is_gated) {
  constexpr int64_t kSamples = 16, kTokens = 16, D = 384, H = 1536, K = 2;
  RankGrid grid = testing::self_grid();
  MoeOptions options;
  options.router = {"top_k", ScoreOptions{K, RouterNoise::kGaussian, {}}};
  if (is_gated) {
    options.experts = {"gated", GatedExpertBank::Options{4, H}};
  } else {
    options.experts = {"plain", ExpertBank::Options{4, H}};
  }
  const bool is_double = dtype == torch::kFloat64;
  MoeLayer layer(options, D, kPath, {&grid, is_double ? torch::kFloat64 : torch::kFloat32});
  initialise(parameters_of(layer, kPath), 9);
  const torch::Tensor x = noise({kSamples, kTokens, D}, 1).to(dtype).set_requires_grad(true);
  layer.forward(x, step_of(kSamples));  // what is made once
  const CountedMemory memory;
  const torch::Tensor y = layer.forward(x, step_of(kSamples)).y_BRD;
  // The tokens were there before, but they are kept; the result is the next layer's to keep.
  const double kept = static_cast<double>(memory.held_bytes() - static_cast<int64_t>(y.nbytes()) +
                                          static_cast<int64_t>(x.nbytes()));
  const double least = static_cast<double>(kSamples * kTokens * (D + (is_gated ? 2 : 1) * K * H) *
                                           static_cast<int64_t>(x.element_size()));
  EXPECT_GE(kept, least);
  y.sum().backward();  // and nothing of it was missing
  return kept / least;
}

// The least is 2 (D + g K H) bytes a token in bfloat16; indices, scores and weights come on top.
TEST(MoeLayerMemory, KeepsTokensAndPreActivationsAlone) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat64}) {
    for (const bool is_gated : {false, true}) {
      EXPECT_LT(kept_over_least(dtype, is_gated), 1.05) << dtype << " gated " << is_gated;
    }
  }
}

}  // namespace
}  // namespace shoal
