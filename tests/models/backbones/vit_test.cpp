#include <ATen/ops/gelu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/backbones/vit.h"
#include "models/blocks/dropout.h"
#include "tests/support/config_error.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tiny_model.h"

// b images  S tokens  C width  N heads
namespace shoal {
namespace {

using testing::build_model;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::image_batch;
using testing::in_step;
using testing::kImageNet;
using testing::kTinyImage;
using testing::kTinyMoe;
using testing::kTinyNexus;
using testing::meta_context;
using testing::some_step;

TEST(Vit, HasThePapersParametersExactly) {  // case 14
  const auto count = [](const std::string& keys) {
    const auto task =
        build_model("model: {backbone: vit" + keys + "}", kImageNet, 1000, meta_context());
    return testing::count_parameters(*task);
  };
  EXPECT_EQ(count(", width: 192, heads: 3, hidden: 768"), 5717416);
  EXPECT_EQ(count(", width: 384, heads: 6, hidden: 1536"), 22050664);
  EXPECT_EQ(count(", width: 384, heads: 6"), 22050664);  // hidden follows
  EXPECT_EQ(count(", width: 384, heads: 6, hidden: auto"), 22050664);
  EXPECT_EQ(count(""), 86567656);
  EXPECT_EQ(count(", width: 1024, depth: 24, heads: 16, hidden: 4096"), 304326632);
}

// Three of twelve blocks have eight MLPs instead of one, and a router.
TEST(Vit, HasTheParametersOfItsExperts) {
  const auto task = build_model(
      "model: {backbone: vit, moe: {router: {k: 2}, experts: {count: 8, hidden: 3072}}}", kImageNet,
      1000, meta_context());
  constexpr int64_t kMlp = 2 * 768 * 3072 + 3072 + 768, kRouter = 768 * 8;
  EXPECT_EQ(testing::count_parameters(*task), 86567656 + 3 * (7 * kMlp + kRouter));
}

/// Images of 4 x 6 pixels, 6 patches of width 6, two blocks.
std::string tiny_vit(const std::string& more = "") {
  return "model: {backbone: vit, patch: 2, width: 6, depth: 2, heads: 2, hidden: 7" + more + "}";
}
/// A tiny ViT of width 4, which the fixed positions divide.
const std::string kFixed =
    "model: {backbone: vit, patch: 2, width: 4, depth: 2, heads: 2, hidden: 7, positions: sin_cos}";

class TinyVit : public testing::TinyModel {
 protected:
  torch::Tensor plain_attention(const torch::Tensor& x_bSC, const std::string& path) const {
    const torch::Tensor qkv = plain_linear(x_bSC, path + ".qkv");
    std::vector<torch::Tensor> heads;
    for (int64_t head = 0; head < 2; ++head) {
      const auto part = [&](int64_t which) { return qkv.narrow(2, which * 6 + head * 3, 3); };
      const torch::Tensor logits = part(0).matmul(part(1).transpose(1, 2)) / std::sqrt(3.0);
      heads.push_back(logits.softmax(2).matmul(part(2)));
    }
    return plain_linear(torch::cat(heads, 2), path + ".proj");
  }
  /// Logits by the equations of Dosovitskiy et al. 2021 as they stand, each branch times the
  /// samples' factors of stochastic depth, which rises over the two blocks from 0 to `drop_path`.
  torch::Tensor plain_logits(const torch::Tensor& image_bCHW, bool has_cls, const StepContext& step,
                             double drop_path = 0.0) const {
    const int64_t b = image_bCHW.size(0);
    const auto factor_b11 = [&](const std::string& branch) {
      const double rate = branch.starts_with("blocks.1.") ? drop_path : 0.0;
      return DropPath(rate, branch).forward(torch::ones({b, 1, 1}, torch::kFloat64), step);
    };
    const torch::Tensor patches =
        image_bCHW.view({b, 1, 2, 2, 3, 2}).permute({0, 2, 4, 1, 3, 5}).reshape({b, 6, 4});
    torch::Tensor x = plain_linear(patches, "backbone.stem");
    if (has_cls) x = torch::cat({at("backbone.cls").view({1, 1, 6}).repeat({b, 1, 1}), x}, 1);
    x = x + at("backbone.positions");                  // eq. 1
    const auto scale = [&](const std::string& name) {  // LayerScale
      return has(name) ? at(name) : torch::ones({6}, torch::kFloat64);
    };
    for (const std::string name : {"blocks.0.", "blocks.1."}) {
      const std::string block = "backbone." + name;
      const torch::Tensor normed = plain_norm(x, block + "attention_norm");
      x = x + factor_b11(name + "attention") * scale(block + "attention_scale") *
                  plain_attention(normed, block + "attention");
      const torch::Tensor hidden =
          at::gelu(plain_linear(plain_norm(x, block + "mlp_norm"), block + "mlp.fc1"));
      x = x + factor_b11(name + "mlp") * scale(block + "mlp_scale") *
                  plain_linear(hidden, block + "mlp.fc2");  // eq. 3
    }
    x = plain_norm(x, "backbone.norm");  // eq. 4
    return plain_linear(has_cls ? x.select(1, 0) : x.mean(1), "head");
  }
};

TEST_F(TinyVit, IsThePapersEquations) {
  const torch::NoGradGuard no_grad;
  for (const std::string keys : {"", ", pool: mean", ", layer_scale: 0.1"}) {
    const bool has_cls = keys != ", pool: mean";
    const auto task = make(tiny_vit(keys));
    const Batch images = batch(4);
    const StepContext step = some_step(4, false);
    const torch::Tensor expected = plain_logits(images.image_bCHW(), has_cls, step);
    EXPECT_LT((task->outputs(in_step(images, step)) - expected).abs().max().item<double>(), 1e-13);
    EXPECT_EQ(has("backbone.cls"), has_cls);
  }
}

TEST_F(TinyVit, GradientsOfATrainingStepAreThoseOfFiniteDifferences) {
  for (const std::string& keys :
       {std::string(), std::string(", pool: mean"), std::string(", drop_path: 0.5"),
        kTinyMoe + ", drop_path: 0.5", kTinyNexus, kTinyMoe + ", layer_scale: 0.1"}) {
    SCOPED_TRACE(keys);
    EXPECT_LT(gradient_error_of(tiny_vit(keys)), 1e-6);
  }
  EXPECT_LT(gradient_error_of(kFixed), 1e-6);
}

TEST_F(TinyVit, FixedPositionsAreAddedToPatchesAndNothingToTheClassToken) {
  const torch::NoGradGuard no_grad;
  const auto fixed = make(kFixed);
  EXPECT_FALSE(has("backbone.positions"));
  const torch::Tensor logits = fixed->outputs(in_step(batch(4), some_step(4, false)));
  std::string learned_recipe = kFixed;
  learned_recipe.replace(learned_recipe.find("sin_cos"), 7, "learned");
  const auto learned = make(learned_recipe);
  at("backbone.positions")
      .copy_(torch::cat({torch::zeros({1, 4}, torch::kFloat64),
                         sin_cos_positions(2, 3, 4, torch::TensorOptions(torch::kFloat64))}));
  EXPECT_LT((learned->outputs(in_step(batch(4), some_step(4, false))) - logits)
                .abs()
                .max()
                .item<double>(),
            1e-13);
}

TEST_F(TinyVit, StochasticDepthScalesEachBranchByDrawsOfItsOwn) {
  const torch::NoGradGuard no_grad;
  const auto task = make(tiny_vit(", drop_path: 0.5"));
  const Batch images = batch(16);
  const StepContext step = some_step(16, true);
  const torch::Tensor expected = plain_logits(images.image_bCHW(), true, step, 0.5);
  EXPECT_LT((task->outputs(in_step(images, step)) - expected).abs().max().item<double>(), 1e-13);
  const auto draws = [&](const std::string& branch) {
    return DropPath(0.5, branch).forward(torch::ones({16}, torch::kFloat64), step);
  };
  EXPECT_FALSE(draws("blocks.1.attention").equal(draws("blocks.1.mlp")));
}

TEST_F(TinyVit, StochasticDepthActsInTrainingAlone) {
  EXPECT_NE(loss_of(tiny_vit(", drop_path: 0.5"), true), loss_of(tiny_vit(), true));
  EXPECT_NEAR(loss_of(tiny_vit(", drop_path: 0.5"), false), loss_of(tiny_vit(), false), 1e-13);
}

TEST_F(TinyVit, AnImagesLogitsDoNotDependOnItsBatch) {
  const torch::NoGradGuard no_grad;
  for (const std::string& keys : {std::string(), kTinyMoe, kTinyNexus}) {
    const auto task = make(tiny_vit(keys));
    const Batch images = batch(5);
    const torch::Tensor whole = task->outputs(in_step(images, some_step(5, false)));
    const Batch last =
        image_batch(images.image_bCHW().narrow(0, 4, 1), images.label_b.narrow(0, 4, 1));
    const torch::Tensor alone = task->outputs(in_step(last, some_step(1, false)));
    EXPECT_LT((alone - whole.narrow(0, 4, 1)).abs().max().item<double>(), 1e-13) << keys;
  }
}

TEST_F(TinyVit, TakesNoImages) {
  for (const std::string& keys :
       {std::string(", drop_path: 0.5"), kTinyMoe + ", pool: mean", kTinyNexus}) {
    expect_zeros_without_images(tiny_vit(keys));
  }
}

TEST_F(TinyVit, CountsTheAuxiliaryLossesOfItsExperts) {
  const TrainOutput output = make(tiny_vit(kTinyMoe + ", sparse_blocks: {from: 0, every: 1}"))
                                 ->train(in_step(batch(4), some_step(4, true)));
  ASSERT_EQ(output.moe.size(), 2u);
  EXPECT_EQ(output.moe[0].layer, "blocks.0.moe");
  EXPECT_EQ(output.moe[1].layer, "blocks.1.moe");
  double losses = 0;
  for (const MoeStats& stats : output.moe) losses += 0.1 * report(stats).losses.at(0).second;
  EXPECT_GT(losses, 0.0);
  std::string bare = kTinyMoe;
  bare.replace(bare.find("{name: importance, weight: 0.1}"), 31, "");
  const double plain = make(tiny_vit(bare + ", sparse_blocks: {from: 0, every: 1}"))
                           ->train(in_step(batch(4), some_step(4, true)))
                           .loss.item<double>();
  EXPECT_NEAR(output.loss.item<double>(), plain + losses, 1e-12);
}

TEST(Vit, ParametersOfItsOwnStartSmallAndThoseOfTwoDimensionsDecay) {
  const auto task = build_model(tiny_vit(kTinyMoe), kTinyImage, 3, meta_context());
  int64_t num_own = 0;
  for (const Parameter& parameter : parameters_of(*task)) {
    const bool is_positions = parameter.name == "backbone.positions";
    if (is_positions || parameter.name == "backbone.cls") {
      ++num_own;
      EXPECT_EQ(parameter.init.kind, Init::Kind::kNormal) << parameter.name;
      EXPECT_EQ(parameter.init.scale, 0.02) << parameter.name;
    }
    const bool is_weight =
        parameter.name.ends_with(".weight") && !parameter.name.ends_with("norm.weight");
    EXPECT_EQ(parameter.matrix_dims() >= 2, is_weight || is_positions) << parameter.name;
  }
  EXPECT_EQ(num_own, 2);
}

std::vector<std::string> stages_of(const std::string& keys) {
  const auto task = build_model("model: {backbone: vit, width: 6, heads: 2, hidden: 7" + keys + "}",
                                kImageNet, 3, meta_context());
  std::vector<std::string> names;
  for (const auto& stage : moe_stages_of(*task)) names.push_back(stage->info().name);
  return names;
}

TEST(Vit, PutsExpertsIntoEverySecondBlockOfTheLastHalfUnlessTold) {
  const std::string six = ", depth: 6" + kTinyMoe;
  EXPECT_THAT(stages_of(six), ElementsAre("blocks.3.moe", "blocks.5.moe"));
  EXPECT_THAT(stages_of(", depth: 1" + kTinyMoe), ElementsAre("blocks.0.moe"));
  EXPECT_THAT(stages_of(six + ", sparse_blocks: {from: 0}"),
              ElementsAre("blocks.1.moe", "blocks.3.moe", "blocks.5.moe"));
  EXPECT_THAT(stages_of(six + ", sparse_blocks: {to: 4}"), ElementsAre("blocks.4.moe"));
  EXPECT_THAT(stages_of(six + ", sparse_blocks: {from: 1, to: 4, every: 1}"),
              ElementsAre("blocks.1.moe", "blocks.2.moe", "blocks.3.moe", "blocks.4.moe"));
  EXPECT_THAT(stages_of(six + ", sparse_blocks: {from: 0, to: 5, every: 4}"),
              ElementsAre("blocks.1.moe", "blocks.5.moe"));
  EXPECT_THAT(stages_of(", depth: 6"), ElementsAre());
}

TEST(Vit, PutsNexusLayersIntoTheLastHalfUnlessTold) {
  const std::string five = ", depth: 5" + kTinyNexus;
  EXPECT_THAT(stages_of(five), ElementsAre("blocks.2.nexus", "blocks.3.nexus", "blocks.4.nexus"));
  EXPECT_THAT(stages_of(five + ", sparse_blocks: {from: 1, to: 3, every: 2}"),
              ElementsAre("blocks.1.nexus", "blocks.3.nexus"));
}

std::string vit_error(const std::string& keys) {
  return testing::config_error_of([&] {
    build_model("model: {backbone: vit, depth: 6" + keys + "}", kImageNet, 3, meta_context());
  });
}

TEST(Vit, RefusesKeysThatContradictEachOther) {
  EXPECT_THAT(vit_error(", positions: sin_cos, width: 6, heads: 2"),
              HasSubstr("model.width: sin_cos positions need a multiple of 4, not 6"));
  EXPECT_THAT(vit_error(", heads: 5"), HasSubstr("model.heads: 5 heads do not divide"));
  EXPECT_THAT(vit_error(", sparse_blocks: {to: 3}"),
              HasSubstr("model.sparse_blocks: needs moe or nexus"));
  EXPECT_THAT(vit_error(kTinyMoe + kTinyNexus),
              HasSubstr("model.nexus: a block's MLP place takes moe or"));
  EXPECT_THAT(vit_error(kTinyMoe + ", sparse_blocks: {to: 6}"),
              HasSubstr("model.sparse_blocks.to: the model's blocks are 0 to 5, got 6"));
  EXPECT_THAT(
      vit_error(kTinyMoe + ", sparse_blocks: {to: 2}"),
      HasSubstr("sparse_blocks.to: must be at least sparse_blocks.from: 2 is below 3 (auto)"));
  EXPECT_THAT(vit_error(kTinyMoe + ", sparse_blocks: {from: 6}"),
              HasSubstr("must be at most sparse_blocks.to: 6 is above 5 (auto)"));
  EXPECT_THAT(vit_error(kTinyMoe + ", sparse_blocks: {from: 5, to: 4}"),
              HasSubstr("must be at most sparse_blocks.to: 5 is above 4"));
  EXPECT_THAT(vit_error(kTinyMoe + ", sparse_blocks: {at: 4}"), HasSubstr("unknown key"));
  EXPECT_THAT(vit_error(", drop_path: 1"), HasSubstr("model.drop_path: "));
  EXPECT_THAT(vit_error(", patch: 15"), HasSubstr("model.patch: 15 does not divide"));
}

// Two rows of three patches, width 8: frequencies 1 and 1/100.
TEST(SinCosPositions, AreThoseOfTheFormula) {
  const torch::Tensor positions = sin_cos_positions(2, 3, 8, torch::kFloat64);
  ASSERT_EQ(positions.sizes(), (at::IntArrayRef{6, 8}));
  const torch::Tensor first = torch::tensor({0, 0, 1, 1, 0, 0, 1, 1}, torch::kFloat64);
  EXPECT_TRUE(positions[0].equal(first));
  // Row 1, column 2.
  const torch::Tensor last =
      torch::tensor({std::sin(1.0), std::sin(0.01), std::cos(1.0), std::cos(0.01), std::sin(2.0),
                     std::sin(0.02), std::cos(2.0), std::cos(0.02)},
                    torch::kFloat64);
  EXPECT_LE(testing::apart(positions[5], last), 1e-15);
  EXPECT_THROW(sin_cos_positions(2, 2, 6, torch::kFloat64), c10::Error);
}

}  // namespace
}  // namespace shoal
