#include <ATen/ops/gelu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/config_error.h"
#include "tests/support/tiny_model.h"

// b images  S tokens  C width  P new tokens  W new width  T rows of a MoE stage  U experts
namespace shoal {
namespace {

using ::testing::AllOf;
using testing::build_model;
using testing::count_parameters;
using ::testing::HasSubstr;
using testing::in_step;
using testing::kImageNet;
using testing::kTinyImage;
using testing::meta_context;
using testing::some_step;

std::string moe_stage(int64_t count, int64_t hidden, int64_t k) {
  return "{router: {name: top_k, k: " + std::to_string(k) +
         "}, experts: {count: " + std::to_string(count) + ", hidden: " + std::to_string(hidden) +
         "}}";
}

/// Sparse-B of the paper's table 8 with these blocks.
std::string sparse_b(int64_t dense, int64_t sparse, int64_t token_experts) {
  return "model: {backbone: sparse_mlp, dense_blocks: " + std::to_string(dense) +
         ", sparse_blocks: " + std::to_string(sparse) +
         ", sparse: {token_moe: " + moe_stage(token_experts, 768, 1) +
         ", channel_moe: " + moe_stage(4, 1536, 2) + "}}";
}

/// Sparse-S with this many sparse blocks.
std::string sparse_s(int64_t sparse) {
  return "model: {backbone: sparse_mlp, width: 512, dense_blocks: 6, token_hidden: 256, "
         "channel_hidden: 2048, sparse_blocks: " +
         std::to_string(sparse) +
         ", sparse: {tokens: 392, width: 512, token_moe: " + moe_stage(4, 512, 1) +
         ", channel_moe: null, channel_hidden: 2048}}";
}

// Whole models: tests/models/shipped_recipes_test.cpp.
TEST(SparseMlp, BlocksHaveTheCountedParameters) {  // case 14
  const auto count = [](const std::string& recipe) {
    return count_parameters(*build_model(recipe, kImageNet, 1000, meta_context()));
  };
  EXPECT_EQ(count(sparse_b(11, 2, 8)) - count(sparse_b(10, 2, 8)), 4876612);
  EXPECT_EQ(count(sparse_b(10, 3, 8)) - count(sparse_b(10, 2, 8)), 10303884);
  EXPECT_EQ(count(sparse_b(8, 7, 16)) - count(sparse_b(8, 6, 16)), 15133196);
  EXPECT_EQ(count(sparse_s(3)) - count(sparse_s(2)), 4392140);
  std::string follows = sparse_s(2);
  const std::string given = "token_hidden: 256, channel_hidden: 2048, sparse_blocks";
  follows.replace(follows.find(given), given.size(), "sparse_blocks");
  EXPECT_EQ(count(follows), count(sparse_s(2)));
  const auto model = build_model(sparse_b(10, 2, 8), kImageNet, 1000, meta_context());
  std::map<std::string, int64_t> parts;
  for (const Parameter& parameter : parameters_of(*model)) {
    const int64_t size =
        parameter.tensor.numel() / (parameter.is_stacked() ? parameter.tensor.size(0) : 1);
    for (const std::string part : {"moe_s.experts", "moe_c.experts", "channels_", "tokens_"}) {
      if (parameter.name.starts_with("backbone.blocks.10." + part)) parts[part] += size;
    }
  }
  EXPECT_EQ(parts["moe_s.experts"], 603272);
  EXPECT_EQ(parts["moe_c.experts"], 1181568);
  EXPECT_EQ(parts["channels_"] + parts["tokens_"], 745228);
}

/// Images of 4 x 6 pixels, 6 tokens of width 4, one dense and one sparse block.
std::string tiny_sparse_mlp(const std::string& sparse_keys = "") {
  return "model: {backbone: sparse_mlp, patch: 2, width: 4, dense_blocks: 1, token_hidden: 5, "
         "channel_hidden: 7, sparse_blocks: 1, sparse: {token_moe: {router: {name: "
         "importance_score, k: 1}, experts: {count: 3, hidden: 5}, losses: [{name: importance, "
         "weight: 0.1}, {name: load, weight: 0.1}]}, channel_moe: {router: {k: 2}, experts: "
         "{count: 3, hidden: 5}, losses: [{name: importance, weight: 0.1}]}" +
         sparse_keys + "}}";
}

/// The recipe with a dense MLP in MoE_C's place.
std::string with_dense_channels(std::string recipe) {
  const size_t first = recipe.find("channel_moe: "), end = recipe.find("]}", first) + 2;
  return recipe.replace(first, end - first, "channel_moe: null, channel_hidden: 7");
}

/// The recipe with a token stage that leaves out half of the tokens.
std::string with_drops(std::string recipe) {
  const std::string router = "importance_score, k: 1";
  return recipe.replace(recipe.find(router), router.size(), router + ", drop: 0.5");
}

class TinySparseMlp : public testing::TinyModel {
 protected:
  // Sparse-MLP eq. 1 and 2 without noise, one row after another.
  torch::Tensor plain_moe(const torch::Tensor& x_TD, const std::string& path, int64_t k) const {
    const torch::Tensor gate_TU = at::softmax(x_TD.mm(at(path + ".router.weight")), 1);
    torch::Tensor y_TD = torch::zeros_like(x_TD);
    for (int64_t t = 0; t < x_TD.size(0); ++t) {
      const auto [weight_K, unit_K] = gate_TU[t].topk(k);
      for (int64_t j = 0; j < k; ++j) {
        const int64_t unit = unit_K[j].item<int64_t>();
        const auto expert = [&](const std::string& name) {
          return at(path + ".experts.*." + name)[unit];
        };
        const torch::Tensor hidden =
            at::gelu(x_TD[t].matmul(expert("fc1.weight")) + expert("fc1.bias"));
        y_TD[t] += weight_K[j] * (hidden.matmul(expert("fc2.weight")) + expert("fc2.bias"));
      }
    }
    return y_TD;
  }
  torch::Tensor plain_mlp(const torch::Tensor& x, const std::string& path) const {
    return plain_linear(at::gelu(plain_linear(x, path + ".fc1")), path + ".fc2");
  }
  /// Logits by the paper's equations as they stand.
  torch::Tensor plain_logits(const torch::Tensor& image_bCHW, bool outer_residual) const {
    const int64_t b = image_bCHW.size(0);
    const torch::Tensor patches =
        image_bCHW.view({b, 1, 2, 2, 3, 2}).permute({0, 2, 4, 1, 3, 5}).reshape({b, 6, 4});
    torch::Tensor x = plain_linear(patches, "backbone.stem");
    const std::string dense = "backbone.blocks.0.", sparse = "backbone.blocks.1.";
    const auto t = [](const torch::Tensor& y) { return y.transpose(1, 2); };
    x = x + t(plain_mlp(t(plain_norm(x, dense + "token_norm")), dense + "token_mlp"));  // eq. 8
    x = x + plain_mlp(plain_norm(x, dense + "channel_norm"), dense + "channel_mlp");    // eq. 9
    const torch::Tensor into = x;
    const bool has_rescale = has(sparse + "channels_in.weight");
    if (has_rescale) {  // eq. 4
      x = plain_linear(x, sparse + "channels_in");
      x = t(plain_linear(t(x), sparse + "tokens_in"));
    }
    const torch::Tensor u = t(plain_norm(x, sparse + "token_norm"));
    x = x + t(plain_moe(u.reshape({-1, u.size(2)}), sparse + "moe_s", 1).view(u.sizes()));  // 5
    const torch::Tensor v = plain_norm(x, sparse + "channel_norm");
    if (has(sparse + "moe_c.router.weight")) {
      x = x + plain_moe(v.reshape({-1, v.size(2)}), sparse + "moe_c", 2).view(v.sizes());  // eq. 6
    } else {
      x = x + plain_mlp(v, sparse + "channel_mlp");
    }
    if (has_rescale) {  // eq. 7
      x = t(plain_linear(t(x), sparse + "tokens_out"));
      x = plain_linear(x, sparse + "channels_out");
    }
    if (outer_residual) x = x + into;
    return plain_linear(plain_norm(x, "backbone.norm").mean(1), "head");
  }
};

double cross_entropy(const torch::Tensor& logits_bN, const torch::Tensor& label_b) {
  return -logits_bN.log_softmax(1).gather(1, label_b.unsqueeze(1)).sum().item<double>();
}

TEST_F(TinySparseMlp, IsThePapersEquations) {
  for (const std::string& recipe :
       {tiny_sparse_mlp(), tiny_sparse_mlp(", outer_residual: true"),
        tiny_sparse_mlp(", rescale: false"), with_dense_channels(tiny_sparse_mlp()),
        with_dense_channels(tiny_sparse_mlp(", rescale: false"))}) {
    SCOPED_TRACE(recipe);
    const bool outer_residual = recipe.find("outer_residual: true") != std::string::npos;
    const auto task = make(recipe);
    const Batch images = batch(4);
    const torch::NoGradGuard no_grad;
    EXPECT_NEAR(task->evaluate(in_step(images, some_step(4, false))).sums[0].sum,
                cross_entropy(plain_logits(images.image_bCHW(), outer_residual), images.label_b),
                1e-12);
  }
}

TEST_F(TinySparseMlp, GradientsOfATrainingStepAreThoseOfFiniteDifferences) {
  for (const std::string& recipe :
       {tiny_sparse_mlp(), tiny_sparse_mlp(", outer_residual: true"),
        tiny_sparse_mlp(", rescale: false"), with_dense_channels(tiny_sparse_mlp()),
        with_drops(tiny_sparse_mlp()), with_drops(tiny_sparse_mlp(", rescale: false"))}) {
    SCOPED_TRACE(recipe);
    const auto task = make(recipe);
    const Batch images = in_step(batch(4), some_step(4, true));
    // Norms over four channels bend: a small step.
    const auto loss = [&] { return task->train(images).loss; };
    EXPECT_LT(testing::gradient_error(loss, parameters(), 2e-6), 1e-6);
    const bool has_drops = recipe.find("drop: 0.5") != std::string::npos;
    EXPECT_EQ(report(task->train(images).moe[0]).unrouted, has_drops ? 0.5 : 0.0);
  }
}

TEST_F(TinySparseMlp, SumsTheAuxiliaryLossesOfItsStages) {
  const auto task = make(tiny_sparse_mlp());
  const TrainOutput output = task->train(in_step(batch(4), some_step(4, true)));
  ASSERT_EQ(output.moe.size(), 2u);
  EXPECT_EQ(output.moe[0].layer, "blocks.1.moe_s");
  EXPECT_EQ(output.moe[1].layer, "blocks.1.moe_c");
  EXPECT_EQ(output.moe[0].loss_names, (std::vector<std::string>{"importance", "load"}));
  double losses = 0;
  for (const MoeStats& stats : output.moe) {
    for (const auto& [name, value] : report(stats).losses) losses += 0.1 * value;
  }
  EXPECT_GT(losses, 0.0);
  std::string bare = tiny_sparse_mlp();
  for (const std::string loss : {"{name: importance, weight: 0.1}, {name: load, weight: 0.1}",
                                 "{name: importance, weight: 0.1}"}) {
    bare.replace(bare.find(loss), loss.size(), "");
  }
  const double plain = make(bare)->train(in_step(batch(4), some_step(4, true))).loss.item<double>();
  EXPECT_NEAR(output.loss.item<double>(), plain + losses, 1e-12);
}

TEST_F(TinySparseMlp, TakesNoImages) { expect_zeros_without_images(tiny_sparse_mlp()); }

TEST_F(TinySparseMlp, PlacesSparseBlocksFirstOrLast) {
  const auto first = build_model(tiny_sparse_mlp().replace(7, 1, "{positions: first, "), kTinyImage,
                                 3, meta_context());
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_of(*first)) names.push_back(parameter.name);
  EXPECT_THAT(names, ::testing::Contains("backbone.blocks.0.moe_s.router.weight"));
  EXPECT_THAT(names, ::testing::Contains("backbone.blocks.1.token_mlp.fc1.weight"));
}

TEST_F(TinySparseMlp, WithoutRescaleKeepsTheShape) {
  make(tiny_sparse_mlp(", rescale: false"));
  EXPECT_FALSE(has("backbone.blocks.1.channels_in.weight"));
  EXPECT_EQ(at("backbone.blocks.1.moe_s.router.weight").sizes(), (at::IntArrayRef{6, 3}));
  EXPECT_EQ(at("backbone.blocks.1.moe_c.router.weight").sizes(), (at::IntArrayRef{4, 3}));
}

TEST_F(TinySparseMlp, TakesADenseMlpInMoeCsPlace) {
  const std::string recipe =
      "model: {backbone: sparse_mlp, patch: 2, width: 4, dense_blocks: 0, sparse_blocks: 1, "
      "sparse: {token_moe: {experts: {count: 2, hidden: 3}}, channel_moe: null, channel_hidden: "
      "9}}";
  const auto task = make(recipe);
  EXPECT_EQ(at("backbone.blocks.0.channel_mlp.fc1.weight").sizes(), (at::IntArrayRef{9, 2}));
  EXPECT_EQ(task->train(in_step(batch(2), some_step(2, true))).moe.size(), 1u);
}

std::string error_of_recipe(const std::string& recipe) {
  return testing::config_error_of([&] { build_model(recipe, kTinyImage, 3, meta_context()); });
}

std::string sparse_mlp_error(const std::string& sparse_keys) {
  return error_of_recipe(tiny_sparse_mlp(sparse_keys));
}

TEST_F(TinySparseMlp, RefusesKeysThatContradictEachOther) {
  EXPECT_THAT(sparse_mlp_error(", rescale: false, tokens: 8"), HasSubstr("needs rescale: true"));
  EXPECT_THAT(sparse_mlp_error(", rescale: false, width: 8"), HasSubstr("needs rescale: true"));
  EXPECT_THAT(sparse_mlp_error(", channel_hidden: 8"), HasSubstr("set channel_moe: null"));
  EXPECT_THAT(sparse_mlp_error(", outer_residuals: true"),
              HasSubstr("did you mean 'outer_residual'?"));
}

TEST_F(TinySparseMlp, RefusesNormalisedWeightsOfOneUnitInTheTokenStage) {
  std::string recipe = tiny_sparse_mlp();
  recipe.replace(recipe.find("score, k: 1"), 11, "score, k: 1, weights: {normalise: sum}");
  EXPECT_THAT(error_of_recipe(recipe),
              HasSubstr("token_moe.router.weights.normalise: sum makes every"));
}

TEST_F(TinySparseMlp, RefusesSizesNoMachineHas) {
  EXPECT_THAT(sparse_mlp_error(", tokens: 1000000000000"), HasSubstr("at most 1048576"));
  EXPECT_THAT(sparse_mlp_error(", width: 1000000000000"), HasSubstr("at most 1048576"));
  std::string many = tiny_sparse_mlp();
  many.replace(many.find("count: 3"), 8, "count: 1000000000000");
  EXPECT_THAT(error_of_recipe(many), AllOf(HasSubstr("token_moe.experts.count: must be at least 1"),
                                           HasSubstr("at most 65536")));
}

TEST_F(TinySparseMlp, ListsItsMoeStages) {
  const auto task = make(tiny_sparse_mlp());
  std::vector<MoeStageInfo> stages;
  for (const auto& stage : moe_stages_of(*task)) stages.push_back(stage->info());
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].name, "blocks.1.moe_s");
  EXPECT_EQ(stages[0].num_units, 3);
  EXPECT_EQ(stages[0].units_per_token, 1);
  EXPECT_EQ(stages[1].units_per_token, 2);
}

}  // namespace
}  // namespace shoal
