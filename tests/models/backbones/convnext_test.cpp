#include <ATen/ops/conv2d.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/blocks/dropout.h"
#include "tests/support/config_error.h"
#include "tests/support/tiny_model.h"

// b images  H height  W width  C channels
namespace shoal {
namespace {

using testing::build_model;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::in_step;
using testing::kImageNet;
using testing::kTinyMoe;
using testing::kTinyNexus;
using testing::meta_context;
using testing::some_step;

constexpr ImageShape kConvNextImage{1, 8, 4};

TEST(ConvNext, HasThePapersParametersExactly) {  // case 14
  const auto count = [](const std::string& keys) {
    const auto task =
        build_model("model: {backbone: convnext" + keys + "}", kImageNet, 1000, meta_context());
    return testing::count_parameters(*task);
  };
  EXPECT_EQ(count(""), 28589128);
  EXPECT_EQ(count(", depths: [3, 3, 27, 3]"), 50223688);
  EXPECT_EQ(count(", depths: [3, 3, 27, 3], widths: [128, 256, 512, 1024]"), 88591464);
}

// The last half of ConvNeXt-T's blocks is six of its third stage and the fourth. Twelve experts of
// 8 C^2 and four memory units of 2 * 1024 C and a scale: 17.3 M and 62.9 M a layer.
TEST(ConvNext, HasTheParametersOfItsNexusUnits) {
  const auto task =
      build_model("model: {backbone: convnext, nexus: {}}", kImageNet, 1000, meta_context());
  std::map<int64_t, std::pair<int64_t, std::set<std::string>>> units;  // by channels
  for (const Parameter& parameter : parameters_of(*task)) {
    const size_t layer = parameter.name.find(".nexus.");
    if (layer == std::string::npos || !parameter.is_stacked()) continue;
    const int block = std::stoi(parameter.name.substr(std::string("backbone.blocks.").size()));
    auto& [count, layers] = units[block < 15 ? 384 : 768];
    count += parameter.tensor.numel();
    layers.insert(parameter.name.substr(0, layer));
  }
  EXPECT_EQ(units[384].second.size(), 6u);
  EXPECT_EQ(units[768].second.size(), 3u);
  EXPECT_EQ(units[384].first, 6 * (17301504 + 4));
  EXPECT_EQ(units[768].first, 3 * (62914560 + 4));
}

/// Images of 8 x 4 pixels; two stages of 4 x 2 and 2 x 1 positions with one and two blocks.
std::string tiny_convnext(const std::string& more = "") {
  return "model: {backbone: convnext, stem_patch: 2, depths: [1, 2], widths: [3, 4], expansion: 2" +
         more + "}";
}

class TinyConvNext : public testing::TinyModel {
 protected:
  TinyConvNext() : TinyModel(kConvNextImage) {}

  // Images as [b, C, H, W], norms over C, convolutions as such: how ConvNeXt is written down.
  torch::Tensor channel_norm(const torch::Tensor& x_bCHW, const std::string& path) const {
    return plain_norm(x_bCHW.permute({0, 2, 3, 1}), path).permute({0, 3, 1, 2});
  }
  torch::Tensor plain_patches(const torch::Tensor& x_bCHW, const std::string& path,
                              int64_t patch) const {
    const torch::Tensor& weight = at(path + ".weight");
    return at::conv2d(x_bCHW.contiguous(),
                      weight.view({weight.size(0), x_bCHW.size(1), patch, patch}),
                      at(path + ".bias"), patch);
  }
  /// The branch times the samples' factors of stochastic depth.
  torch::Tensor plain_block(const torch::Tensor& x_bCHW, const std::string& name,
                            const StepContext& step, double drop_path) const {
    const std::string path = "backbone." + name;
    torch::Tensor y = at::conv2d(x_bCHW.contiguous(), at(path + ".conv.weight"),
                                 at(path + ".conv.bias"), 1, 3, 1, x_bCHW.size(1));
    y = plain_norm(y.permute({0, 2, 3, 1}), path + ".norm");
    y = plain_linear(at::gelu(plain_linear(y, path + ".mlp.fc1")), path + ".mlp.fc2");
    const torch::Tensor factor_b111 =
        DropPath(drop_path, name)
            .forward(torch::ones({x_bCHW.size(0), 1, 1, 1}, torch::kFloat64), step);
    return x_bCHW + factor_b111 * (y * at(path + ".gamma")).permute({0, 3, 1, 2});
  }
  /// Stochastic depth rises over the three blocks from 0 to `drop_path`.
  torch::Tensor plain_logits(const torch::Tensor& image_bCHW, const StepContext& step,
                             double drop_path = 0.0) const {
    torch::Tensor x = plain_patches(image_bCHW, "backbone.stem", 2);
    x = plain_block(channel_norm(x, "backbone.stem_norm"), "blocks.0", step, 0.0);
    x = plain_patches(channel_norm(x, "backbone.downsamples.0.norm"), "backbone.downsamples.0.conv",
                      2);
    x = plain_block(x, "blocks.1", step, drop_path / 2);
    x = plain_block(x, "blocks.2", step, drop_path);
    return plain_linear(plain_norm(x.mean({2, 3}), "backbone.norm"), "head");
  }
};

TEST_F(TinyConvNext, IsThePapersConvolutions) {
  const torch::NoGradGuard no_grad;
  const auto task = make(tiny_convnext());
  const Batch images = batch(4);
  const StepContext step = some_step(4, false);
  const torch::Tensor expected = plain_logits(images.image_bCHW(), step);
  EXPECT_LT((task->outputs(in_step(images, step)) - expected).abs().max().item<double>(), 1e-13);
}

TEST_F(TinyConvNext, StochasticDepthScalesEachBranchByDrawsOfItsOwn) {
  const torch::NoGradGuard no_grad;
  const auto task = make(tiny_convnext(", drop_path: 0.6"));
  const Batch images = batch(16);
  const StepContext step = some_step(16, true);
  const torch::Tensor expected = plain_logits(images.image_bCHW(), step, 0.6);
  EXPECT_LT((task->outputs(in_step(images, step)) - expected).abs().max().item<double>(), 1e-13);
}

TEST(ConvNext, ParametersOfTwoDimensionsAndMoreDecay) {
  const auto task = build_model(tiny_convnext(kTinyMoe), kConvNextImage, 3, meta_context());
  for (const Parameter& parameter : parameters_of(*task)) {
    const bool is_weight =
        parameter.name.ends_with(".weight") && !parameter.name.ends_with("norm.weight");
    EXPECT_EQ(parameter.matrix_dims() >= 2, is_weight) << parameter.name;
  }
}

TEST_F(TinyConvNext, GradientsOfATrainingStepAreThoseOfFiniteDifferences) {
  for (const std::string& keys : {std::string(), std::string(", drop_path: 0.5"),
                                  kTinyMoe + ", drop_path: 0.5", kTinyNexus}) {
    SCOPED_TRACE(keys);
    EXPECT_LT(gradient_error_of(tiny_convnext(keys)), 1e-6);
  }
}

TEST_F(TinyConvNext, StochasticDepthActsInTrainingAlone) {
  EXPECT_NE(loss_of(tiny_convnext(", drop_path: 0.5"), true), loss_of(tiny_convnext(), true));
  EXPECT_EQ(loss_of(tiny_convnext(", drop_path: 0.5"), false), loss_of(tiny_convnext(), false));
}

TEST_F(TinyConvNext, UnitsKeepTheBranchesGamma) {
  const torch::NoGradGuard no_grad;
  for (const auto& [keys, layer] : {std::pair{kTinyMoe, "moe"}, std::pair{kTinyNexus, "nexus"}}) {
    SCOPED_TRACE(layer);
    const auto task = make(tiny_convnext(keys + ", sparse_blocks: {from: 0, every: 1}"));
    const Batch images = batch(4);
    const torch::Tensor before = task->outputs(in_step(images, some_step(4, false)));
    for (const char* block : {"0", "1", "2"}) {
      at(std::string("backbone.blocks.") + block + ".gamma").zero_();
    }
    const torch::Tensor after = task->outputs(in_step(images, some_step(4, false)));
    EXPECT_FALSE(after.equal(before));
    // Without branches nothing of the units is left.
    at(std::string("backbone.blocks.1.") + layer + ".experts.*.fc2.weight").fill_(7.0);
    EXPECT_TRUE(task->outputs(in_step(images, some_step(4, false))).equal(after));
  }
}

TEST_F(TinyConvNext, GammaStartsAtTheLayerScale) {
  const auto task = make(tiny_convnext(", layer_scale: 0.25"));
  initialise(parameters_of(*task), 1);
  for (const char* block : {"0", "1", "2"}) {
    EXPECT_TRUE(
        (at(std::string("backbone.blocks.") + block + ".gamma") == 0.25).all().item<bool>());
  }
}

TEST_F(TinyConvNext, TakesNoImages) {
  for (const std::string& keys : {std::string(", drop_path: 0.5"), kTinyMoe, kTinyNexus}) {
    expect_zeros_without_images(tiny_convnext(keys));
  }
}

TEST_F(TinyConvNext, NumbersBlocksThroughAllStages) {
  const TrainOutput output = make(tiny_convnext(kTinyMoe + ", sparse_blocks: {from: 0}"))
                                 ->train(in_step(batch(4), some_step(4, true)));
  std::vector<std::string> layers;
  for (const MoeStats& stats : output.moe) layers.push_back(stats.layer);
  EXPECT_THAT(layers, ElementsAre("blocks.0.moe", "blocks.2.moe"));
  EXPECT_EQ(at("backbone.blocks.0.moe.router.weight").size(0), 3);
  EXPECT_EQ(at("backbone.blocks.2.moe.router.weight").size(0), 4);
  EXPECT_EQ(at("backbone.blocks.1.mlp.fc1.weight").sizes(), (at::IntArrayRef{8, 4}));
}

std::string error_of(const std::string& keys) {
  return testing::config_error_of([&] {
    build_model("model: {backbone: convnext" + keys + "}", kImageNet, 3, meta_context());
  });
}

TEST(ConvNext, RefusesKeysThatContradictEachOther) {
  EXPECT_THAT(error_of(", depths: [1, 2]"),
              HasSubstr("model.widths: must name one width a stage: 4 for 2 depths"));
  EXPECT_THAT(error_of(", stem_patch: 8"),
              HasSubstr("model.stem_patch: patches of 8 pixels and 3 halvings need sides that are "
                        "multiples of 64, images are 224 x 224 pixels"));
  EXPECT_THAT(error_of(", depths: [], widths: []"), HasSubstr("model.depths: "));
  EXPECT_THAT(error_of(kTinyMoe + ", sparse_blocks: {to: 18}"),
              HasSubstr("the model's blocks are 0 to 17, got 18"));
  EXPECT_THAT(error_of(", depths: [4000, 97], widths: [4, 4]"),
              HasSubstr("model.depths: must name at most 4096 blocks in all, got 4097"));
  EXPECT_THAT(error_of(", expansion: 2000"),
              HasSubstr("model.expansion: makes a hidden width of 1536000, which must be at most "
                        "1048576"));
  EXPECT_EQ(error_of(", expansion: 5000, depths: [1], widths: [4]"), "no error");
}

}  // namespace
}  // namespace shoal
