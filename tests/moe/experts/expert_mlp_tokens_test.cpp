#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "moe/experts/expert_bank.h"
#include "moe/experts/expert_mlp.h"
#include "moe/routing/score_router.h"
#include "runtime/random/random.h"
#include "tests/moe/experts/expert_kind.h"
#include "tests/moe/small_layer.h"
#include "tests/support/counted_memory.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

// T tokens  A rows  D width  H hidden width  K choices  u experts
namespace shoal {
namespace {

using testing::CountedMemory;
using testing::ExpertKind;
using testing::gradient_error;
using testing::kExpertKinds;
using testing::kPath;
using testing::relative_error;
using testing::step_of;
using testing::tensors_of;

constexpr int64_t kExperts = 3, kModelWidth = 20, kHidden = 37;
// Sums of up to 37 products of bfloat16 values, each stage rounded once: a few roundings of the
// largest value.
constexpr double kNarrow = 8 * 0.00390625;

/// Sums of these do not cancel to less than what rounding leaves of their terms.
torch::Tensor noise(at::IntArrayRef sizes, uint64_t seed) {
  const torch::Tensor values = torch::empty(sizes, torch::kFloat64);
  fill_normal(values, Stream{seed});
  return values;
}

ExpertWeights normal_weights(ExpertKind kind, torch::Dtype dtype) {
  const auto some = [&](at::IntArrayRef sizes, uint64_t seed) {
    return (noise(sizes, seed) * 0.3).to(dtype).set_requires_grad(true);
  };
  ExpertWeights weights;
  weights.fc1_weight = some({kExperts, kModelWidth, kHidden}, 1);
  weights.fc2_weight = some({kExperts, kHidden, kModelWidth}, 2);
  if (kind.bias) weights.fc1_bias = some({kExperts, kHidden}, 3);
  if (kind.bias) weights.fc2_bias = some({kExperts, kModelWidth}, 4);
  if (kind.gate) weights.gate_weight = some({kExperts, kModelWidth, kHidden}, 12);
  if (kind.gate && kind.bias) weights.gate_bias = some({kExperts, kHidden}, 13);
  return weights;
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

TEST(ExpertMlpOfTokens, EqualsItsThreeSteps) {
  for (const ExpertKind kind : kExpertKinds) {
    const ExpertWeights weights = normal_weights(kind, torch::kFloat64);
    const TokenRows rows = some_rows(torch::kFloat64);
    const torch::Tensor x = noise({4, kModelWidth}, 5).set_requires_grad(true);
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

TEST(ExpertMlp, WeighsItsRows) {
  for (const ExpertKind kind : kExpertKinds) {
    const ExpertWeights weights = normal_weights(kind, torch::kFloat64);
    const torch::Tensor x = noise({7, kModelWidth}, 5).set_requires_grad(true);
    const torch::Tensor weight = noise({7}, 6).set_requires_grad(true);
    std::vector<torch::Tensor> tensors = tensors_of(weights);
    tensors.insert(tensors.end(), {x, weight});
    const UnitRows rows_u{4, 0, 3};
    const auto expected =
        results(expert_mlp(x, rows_u, weights, Activation::kGelu) * weight.unsqueeze(1), tensors);
    const auto actual = results(expert_mlp(x, rows_u, weights, Activation::kGelu, weight), tensors);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(relative_error(actual[i], expected[i]), 1e-14) << i << " gate " << kind.gate;
    }
    EXPECT_THROW(expert_mlp(x, rows_u, weights, Activation::kGelu, weight.detach().narrow(0, 0, 6)),
                 c10::Error);
  }
}

TEST(SplitExperts, PartsWriteTheGradientsOfTheStack) {
  for (const ExpertKind kind : kExpertKinds) {
    const ExpertWeights weights = normal_weights(kind, torch::kFloat64);
    const torch::Tensor x = noise({7, kModelWidth}, 5);
    const std::vector<torch::Tensor> tensors = tensors_of(weights);
    const auto expected = results(expert_mlp(x, {4, 0, 3}, weights, Activation::kGelu), tensors);
    for (const int64_t num_parts : {1, 2, 3}) {
      const std::vector<ExpertWeights> parts = split_experts(weights, num_parts);
      const std::vector<std::vector<int64_t>> rows =
          num_parts == 1   ? std::vector<std::vector<int64_t>>{{4, 0, 3}}
          : num_parts == 2 ? std::vector<std::vector<int64_t>>{{4}, {0, 3}}
                           : std::vector<std::vector<int64_t>>{{4}, {0}, {3}};
      std::vector<torch::Tensor> y;
      int64_t first = 0;
      for (size_t p = 0; p < parts.size(); ++p) {
        const int64_t count = std::accumulate(rows[p].begin(), rows[p].end(), int64_t{0});
        y.push_back(expert_mlp(x.narrow(0, first, count), rows[p], parts[p], Activation::kGelu));
        first += count;
      }
      const auto actual = results(torch::cat(y), tensors);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(torch::equal(actual[i], expected[i])) << i << " gate " << kind.gate;
      }
    }
  }
}

TEST(SplitExperts, APartThatNothingUsesGetsZero) {
  const ExpertWeights weights = normal_weights({}, torch::kFloat32);
  const std::vector<ExpertWeights> parts = split_experts(weights, 3);
  const torch::Tensor x = noise({5, kModelWidth}, 5).to(torch::kFloat32);
  expert_mlp(x, {5}, parts[1], Activation::kGelu).sum().backward();
  for (const torch::Tensor& tensor : tensors_of(weights)) {
    EXPECT_EQ(tensor.grad()[0].abs().max().item<float>(), 0.0f);
    EXPECT_GT(tensor.grad()[1].abs().max().item<float>(), 0.0f);
    EXPECT_EQ(tensor.grad()[2].abs().max().item<float>(), 0.0f);
  }
}

// A serial float32 sum of 40,000 tenths is off by 1e-4 of it.
TEST(ExpertMlp, SumsTheSecondBiasOfManyRowsInParts) {
  constexpr int64_t kRows = 40'000;
  const ExpertWeights weights = normal_weights({}, torch::kFloat32);
  const torch::Tensor x = torch::zeros({kRows, kModelWidth});
  const torch::Tensor weight = torch::full({kRows}, 0.1f);
  expert_mlp(x, {kRows, 0, 0}, weights, Activation::kGelu, weight).sum().backward();
  const double exact = static_cast<double>(0.1f) * kRows;
  EXPECT_NEAR(weights.fc2_bias.grad()[0][3].item<double>(), exact, exact * 1e-5);
}

TEST(ExpertMlpOfTokens, GradientsAreThoseOfFiniteDifferences) {
  for (size_t i = 0; i < kEnumWords<Activation>.size(); ++i) {
    const auto activation = static_cast<Activation>(i);
    for (const ExpertKind kind : kExpertKinds) {
      const ExpertWeights weights = normal_weights(kind, torch::kFloat64);
      const TokenRows rows = some_rows(torch::kFloat64);
      const torch::Tensor x = noise({4, kModelWidth}, 5).set_requires_grad(true);
      const std::vector<torch::Tensor> inputs{x, rows.weight_A, weights.fc2_weight};
      const auto run = [&] { return expert_mlp_of_tokens(x, rows, weights, activation); };
      EXPECT_LT(gradient_error(run, inputs), 1e-6)
          << enum_name(activation) << (kind.gate ? ", gate" : "");
    }
  }
}

TEST(ExpertMlpOfTokens, TakesNoTokensAndNoRows) {
  const ExpertWeights weights = normal_weights({}, torch::kFloat32);
  TokenRows rows;
  rows.index = make_row_index(torch::empty({0}, torch::kInt64), 0);
  rows.weight_A = torch::empty({0}).set_requires_grad(true);
  rows.rows_u = {0, 0, 0};
  const torch::Tensor x = torch::empty({0, kModelWidth}).set_requires_grad(true);
  expert_mlp_of_tokens(x, rows, weights, Activation::kGelu).sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(weights.fc1_weight.grad().abs().max().item<float>(), 0.0f);
}

// float32 weights of bfloat16 rows: gradients are float32, and as far off as rounding explains.
TEST(ExpertMlpOfTokens, NarrowRowsAreThoseOfFloat64ToRounding) {
  for (const ExpertKind kind : kExpertKinds) {
    for (const bool in_steps : {false, true}) {
      const torch::Tensor x = noise({4, kModelWidth}, 5).to(torch::kBFloat16);
      const auto run = [&](torch::Dtype compute, torch::Dtype master) {
        const ExpertWeights weights = normal_weights(kind, master);
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

/// A layer of shape S1.
MoeOptions s1_options(bool is_gated) {
  MoeOptions options;
  options.router = {"top_k", ScoreOptions{2, RouterNoise::kGaussian, {}}};
  if (is_gated) {
    options.experts = {"gated", GatedExpertBank::Options{4, 1536}};
  } else {
    options.experts = {"plain", ExpertBank::Options{4, 1536}};
  }
  return options;
}

/// What that layer keeps for its backward pass on so many ranks, each with as many tokens, over the
/// least: what activations are applied to, and on one rank tokens, on several the rows that arrive.
double kept_over_least(torch::Dtype dtype, bool is_gated, int64_t num_ranks) {
  constexpr int64_t kSamples = 16, kTokens = 16, D = 384, H = 1536, K = 2;
  const bool is_double = dtype == torch::kFloat64;
  std::optional<CountedMemory> memory;  // of all ranks: they are threads
  double kept = 0;
  testing::run_grid(num_ranks, 1, [&](RankGrid& grid) {
    const bool is_first = grid.world->rank() == 0;
    MoeLayer layer(s1_options(is_gated), D, kPath,
                   {&grid, is_double ? torch::kFloat64 : torch::kFloat32});
    initialise(parameters_of(layer, kPath), 9);
    const torch::Tensor x = noise({kSamples, kTokens, D}, 1).to(dtype).set_requires_grad(true);
    StepContext step = step_of(kSamples);
    step.samples_in_step = step.samples_in_micro = kSamples * num_ranks;
    layer.forward(x, step);  // what is made once
    grid.world->barrier();
    if (is_first) memory.emplace();
    grid.world->barrier();
    const torch::Tensor y = layer.forward(x, step).y_BRD;
    grid.world->barrier();
    // The result is the next layer's to keep. On one rank tokens were there before, but are kept.
    if (is_first) {
      const int64_t tokens = num_ranks == 1 ? static_cast<int64_t>(x.nbytes()) : 0;
      const int64_t results = num_ranks * static_cast<int64_t>(y.nbytes());
      kept = static_cast<double>(memory->held_bytes() - results + tokens);
    }
    grid.world->barrier();
    y.sum().backward();  // and nothing of it was missing
    grid.world->barrier();
    if (is_first) memory.reset();
  });
  const int64_t wide = (is_gated ? 2 : 1) * K * H + (num_ranks == 1 ? 1 : K) * D;
  const double least = static_cast<double>(num_ranks * kSamples * kTokens * wide *
                                           (dtype == torch::kBFloat16 ? 2
                                            : is_double               ? 8
                                                                      : 4));
  EXPECT_GE(kept, least);
  return kept / least;
}

// The least is 2 (D + g K H) bytes a token in bfloat16, with rows that travelled 2 K (D + g H);
// indices, scores and weights come on top.
TEST(MoeLayerMemory, KeepsTokensAndPreActivationsAlone) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat64}) {
    for (const bool is_gated : {false, true}) {
      EXPECT_LT(kept_over_least(dtype, is_gated, 1), 1.05) << dtype << " gated " << is_gated;
    }
  }
}

TEST(MoeLayerMemoryRanks, KeepsRowsAndPreActivationsAlone) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kBFloat16}) {
    for (const bool is_gated : {false, true}) {
      EXPECT_LT(kept_over_least(dtype, is_gated, 2), 1.05) << dtype << " gated " << is_gated;
    }
  }
}

}  // namespace
}  // namespace shoal
