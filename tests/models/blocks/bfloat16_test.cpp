#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "models/blocks/attention.h"
#include "models/blocks/mlp.h"
#include "models/decoder/causal_attention.h"
#include "models/kernels/layer_norm.h"
#include "models/kernels/token_linear.h"
#include "models/kernels/transpose_add.h"
#include "models/vision/convnext_block.h"
#include "models/vision/patch_embed.h"
#include "moe/nexus/memory_bank.h"
#include "runtime/random/random.h"
#include "tests/support/gradient_check.h"

// B images  S tokens  C width
namespace shoal {
namespace {

using testing::relative_error;

using Run = std::function<torch::Tensor(const torch::Tensor& x)>;

/// Sums of these do not cancel to less than what rounding leaves of their terms.
torch::Tensor noise(at::IntArrayRef sizes, uint64_t seed) {
  const torch::Tensor values = torch::empty(sizes, torch::kFloat64);
  fill_normal(values, Stream{seed});
  return values;
}

/// A layer with parameters of a dtype.
struct Built {
  std::shared_ptr<torch::nn::Module> module;
  Run run;
};

struct NarrowCase {
  std::string name;
  std::vector<int64_t> sizes;  ///< of the input
  std::function<Built(const torch::TensorOptions&)> build;

  friend std::ostream& operator<<(std::ostream& out, const NarrowCase& test) {
    return out << test.name;
  }
};

constexpr int64_t B = 3, S = 16, C = 24;

template <class Module>
Built built(const Module& module) {
  return {module.ptr(), [module](const torch::Tensor& x) { return module->forward(x); }};
}

std::vector<NarrowCase> decoder_cases() {
  using Options = torch::TensorOptions;
  return {{"RmsNorm",
           {B, S, C},
           [](const Options& o) {
             return built(LayerNorm(C, o, NormOptions{NormKind::kRms, 1e-5}));
           }},
          {"GatedMlp",
           {B, S, C},
           [](const Options& o) {
             return built(GatedMlp(MlpShape{C, 32}, xavier_inits(C, 32), o));
           }},
          {"CausalAttention", {B, S, C}, [](const Options& o) {
             const CausalAttention layer(
                 CausalAttentionImpl::Sizes{.width = C, .heads = 4, .kv_heads = 2, .scale = 0.4},
                 o);
             return Built{layer.ptr(), [layer](const torch::Tensor& x) {
                            const Rotation turns =
                                rotation_at(torch::arange(S), C / 4, 1e4, x.scalar_type());
                            return layer->forward(x, turns, {});
                          }};
           }}};
}

std::vector<NarrowCase> cases() {
  using Options = torch::TensorOptions;
  return {
      {"LayerNorm", {B, S, C}, [](const Options& o) { return built(LayerNorm(C, o)); }},
      {"LayerNormTransposed",
       {B, S, C},
       [](const Options& o) {
         const LayerNorm norm(C, o);
         return Built{norm.ptr(),
                      [norm](const torch::Tensor& x) { return norm->branch_transposed(x).normed; }};
       }},
      {"Mlp", {B, S, C}, [](const Options& o) { return built(Mlp(C, 32, Gelu::kErf, o)); }},
      {"MlpOverTokens",
       {B, S, C},
       [](const Options& o) {
         const Mlp mlp(S, 32, Gelu::kErf, o);
         return Built{mlp.ptr(),
                      [mlp](const torch::Tensor& x) { return mlp->forward_over_tokens(x); }};
       }},
      {"Linear", {B, S, C}, [](const Options& o) { return built(Linear(C, 40, o)); }},
      {"TokenLinear",
       {B, S, C},
       [](const Options& o) {
         const Linear layer(S, 40, o);
         return Built{layer.ptr(), [layer](const torch::Tensor& x) {
                        return token_linear(x, layer->weight, layer->bias);
                      }};
       }},
      {"Attention", {B, S, C}, [](const Options& o) { return built(Attention(C, 4, o)); }},
      {"DepthwiseConv", {B, 8, 8, C}, [](const Options& o) { return built(DepthwiseConv(C, o)); }},
      {"PatchEmbed", {B, 3, 8, 8}, [](const Options& o) { return built(PatchEmbed(3, 4, C, o)); }},
      {"TransposeAdd",
       {B, S, C},
       [](const Options&) {
         return Built{std::make_shared<torch::nn::Module>(), [](const torch::Tensor& x) {
                        return transpose_add(x, x.transpose(1, 2) * 2);
                      }};
       }},
      {"MemoryBank", {B * S, C}, [](const Options& o) {
         UnitBank::Context context;
         context.width = C;
         context.tensor_options = o;
         const auto bank = std::make_shared<MemoryBank>(MemoryBank::Options{1, 32, 4}, context);
         return Built{bank, [bank](const torch::Tensor& x) { return bank->forward(x, {B * S}); }};
       }}};
}

struct Results {
  torch::Tensor y, x_grad;
  std::vector<torch::Tensor> grads;
};

Results run_case(const NarrowCase& test, torch::Dtype compute, torch::Dtype master) {
  const Built layer = test.build(master);
  uint64_t seed = 10;
  for (const torch::Tensor& parameter : layer.module->parameters()) {
    parameter.detach().copy_(noise(parameter.sizes(), seed++) * 0.3);
  }
  const torch::Tensor x =
      noise(test.sizes, 1).to(torch::kBFloat16).to(compute).set_requires_grad(true);
  Results results;
  results.y = layer.run(x);
  (results.y * noise(results.y.sizes(), 2).to(compute)).sum().backward();
  results.x_grad = x.grad();
  for (const torch::Tensor& parameter : layer.module->parameters()) {
    results.grads.push_back(parameter.grad());
  }
  return results;
}

class NarrowLayer : public ::testing::TestWithParam<NarrowCase> {};

TEST_P(NarrowLayer, IsThatOfFloat64ToRoundingWithFloat32Parameters) {
  constexpr double kEpsilon = 0.00390625;
  const Results expected = run_case(GetParam(), torch::kFloat64, torch::kFloat64);
  const Results actual = run_case(GetParam(), torch::kBFloat16, torch::kFloat32);
  EXPECT_EQ(actual.y.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(actual.x_grad.scalar_type(), torch::kBFloat16);
  // A handful of stages, each rounded once relative to its largest value.
  EXPECT_LT(relative_error(actual.y, expected.y), 6 * kEpsilon);
  EXPECT_LT(relative_error(actual.x_grad, expected.x_grad), 6 * kEpsilon);
  ASSERT_EQ(actual.grads.size(), expected.grads.size());
  for (size_t i = 0; i < expected.grads.size(); ++i) {
    EXPECT_EQ(actual.grads[i].scalar_type(), torch::kFloat32) << i;
    EXPECT_LT(relative_error(actual.grads[i], expected.grads[i]), 8 * kEpsilon) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, NarrowLayer, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(DecoderLayers, NarrowLayer, ::testing::ValuesIn(decoder_cases()),
                         [](const auto& info) { return info.param.name; });

// Values near 200 differ by whole numbers in bfloat16; their variance must not suffer from it.
TEST(NarrowLayerNorm, StatisticsAreFloat32) {
  const torch::Tensor x = (torch::arange(64).to(torch::kFloat32) + 192).to(torch::kBFloat16);
  const LayerNorm norm(64, torch::kFloat32);
  for (torch::Tensor parameter : norm->parameters()) {
    const torch::NoGradGuard no_grad;
    parameter.fill_(parameter.is_same(norm->weight) ? 1.0 : 0.0);
  }
  const torch::Tensor y = norm->forward(x.view({1, 64})).to(torch::kFloat32);
  const torch::Tensor exact = (torch::arange(64) - 31.5) / std::sqrt((64.0 * 64.0 - 1) / 12);
  EXPECT_LT((y[0] - exact).abs().max().item<double>(), 0.004 * 1.8);
}

}  // namespace
}  // namespace shoal
