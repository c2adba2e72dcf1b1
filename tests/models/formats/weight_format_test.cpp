#include "models/formats/weight_format.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "models/backbones/gpt2.h"
#include "models/backbones/sparse_mlp.h"
#include "models/backbones/vit.h"
#include "runtime/base/error.h"
#include "tests/support/foreign_model.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::some_numbers;

TEST(WeightName, LaysOutEachWayWhatTheOtherLaidOut) {
  const torch::Tensor matrix = some_numbers({4, 6}, 1);
  const WeightName transposed{"ours", "theirs", {}, /*is_transposed=*/true};
  const torch::Tensor turned = transposed.to_theirs(matrix, torch::kFloat64);
  EXPECT_TRUE(at::equal(turned, matrix.t()));
  EXPECT_TRUE(at::equal(transposed.to_ours(turned, {4, 6}, torch::kFloat64), matrix));

  const WeightName shaped{"ours", "theirs", {4, 3, 1, 2}};
  const torch::Tensor folded = shaped.to_theirs(matrix, torch::kFloat64);
  EXPECT_EQ(folded.sizes(), torch::IntArrayRef({4, 3, 1, 2}));
  EXPECT_TRUE(at::equal(folded.flatten(1), matrix));
  EXPECT_TRUE(at::equal(shaped.to_ours(folded, {4, 6}, torch::kFloat64), matrix));
}

TEST(WeightName, PadsWithZerosAndDropsThem) {
  const WeightName padded{"ours", "theirs", {3, 2}};
  const torch::Tensor rows = some_numbers({3, 2}, 1);
  const torch::Tensor ours = padded.to_ours(rows, {5, 2}, torch::kFloat64);
  EXPECT_TRUE(at::equal(ours.narrow(0, 0, 3), rows));
  EXPECT_EQ(ours.narrow(0, 3, 2).abs().max().item<double>(), 0.0);
  EXPECT_TRUE(at::equal(padded.to_theirs(ours, torch::kFloat64), rows));
}

/// The other program's names, and ours.
using NameMap = std::map<std::string, std::string>;

/// Names of a model with one block.
template <typename Options>
NameMap names_of(const std::string& name, Options options, const DataShape& data) {
  options.depth = 1;
  const auto format = Registry<WeightFormat>::create(Choice<WeightFormat>(name), {});
  NameMap names;
  for (const WeightName& weight :
       format->names(Choice<Backbone>(std::string(format->backbone()), options),
                     Choice<Task>(format->task()), data)) {
    EXPECT_TRUE(names.emplace(weight.theirs, weight.ours).second) << weight.theirs;
  }
  return names;
}

TEST(WeightFormat, NamesOfImageModelsAreThoseOfTimm) {
  const DataShape images{.source = "test", .image = ImageShape{3, 32, 32}, .classes = 10};
  EXPECT_EQ(names_of("timm_vit", Vit::Options{}, images),
            (NameMap{{"blocks.0.attn.proj.bias", "backbone.blocks.0.attention.proj.bias"},
                     {"blocks.0.attn.proj.weight", "backbone.blocks.0.attention.proj.weight"},
                     {"blocks.0.attn.qkv.bias", "backbone.blocks.0.attention.qkv.bias"},
                     {"blocks.0.attn.qkv.weight", "backbone.blocks.0.attention.qkv.weight"},
                     {"blocks.0.mlp.fc1.bias", "backbone.blocks.0.mlp.fc1.bias"},
                     {"blocks.0.mlp.fc1.weight", "backbone.blocks.0.mlp.fc1.weight"},
                     {"blocks.0.mlp.fc2.bias", "backbone.blocks.0.mlp.fc2.bias"},
                     {"blocks.0.mlp.fc2.weight", "backbone.blocks.0.mlp.fc2.weight"},
                     {"blocks.0.norm1.bias", "backbone.blocks.0.attention_norm.bias"},
                     {"blocks.0.norm1.weight", "backbone.blocks.0.attention_norm.weight"},
                     {"blocks.0.norm2.bias", "backbone.blocks.0.mlp_norm.bias"},
                     {"blocks.0.norm2.weight", "backbone.blocks.0.mlp_norm.weight"},
                     {"cls_token", "backbone.cls"},
                     {"head.bias", "head.bias"},
                     {"head.weight", "head.weight"},
                     {"norm.bias", "backbone.norm.bias"},
                     {"norm.weight", "backbone.norm.weight"},
                     {"patch_embed.proj.bias", "backbone.stem.bias"},
                     {"patch_embed.proj.weight", "backbone.stem.weight"},
                     {"pos_embed", "backbone.positions"}}));
  EXPECT_EQ(
      names_of("timm_mixer", Mixer::Options{}, images),
      (NameMap{{"blocks.0.mlp_channels.fc1.bias", "backbone.blocks.0.channel_mlp.fc1.bias"},
               {"blocks.0.mlp_channels.fc1.weight", "backbone.blocks.0.channel_mlp.fc1.weight"},
               {"blocks.0.mlp_channels.fc2.bias", "backbone.blocks.0.channel_mlp.fc2.bias"},
               {"blocks.0.mlp_channels.fc2.weight", "backbone.blocks.0.channel_mlp.fc2.weight"},
               {"blocks.0.mlp_tokens.fc1.bias", "backbone.blocks.0.token_mlp.fc1.bias"},
               {"blocks.0.mlp_tokens.fc1.weight", "backbone.blocks.0.token_mlp.fc1.weight"},
               {"blocks.0.mlp_tokens.fc2.bias", "backbone.blocks.0.token_mlp.fc2.bias"},
               {"blocks.0.mlp_tokens.fc2.weight", "backbone.blocks.0.token_mlp.fc2.weight"},
               {"blocks.0.norm1.bias", "backbone.blocks.0.token_norm.bias"},
               {"blocks.0.norm1.weight", "backbone.blocks.0.token_norm.weight"},
               {"blocks.0.norm2.bias", "backbone.blocks.0.channel_norm.bias"},
               {"blocks.0.norm2.weight", "backbone.blocks.0.channel_norm.weight"},
               {"head.bias", "head.bias"},
               {"head.weight", "head.weight"},
               {"norm.bias", "backbone.norm.bias"},
               {"norm.weight", "backbone.norm.weight"},
               {"stem.proj.bias", "backbone.stem.bias"},
               {"stem.proj.weight", "backbone.stem.weight"}}));
}

TEST(WeightFormat, NamesOfGpt2AreThoseOfHuggingFace) {
  const DataShape text{.source = "test", .sequence = 8, .vocabulary = 256, .token_labels = 8};
  EXPECT_EQ(names_of("gpt2", Gpt2::Options{}, text),
            (NameMap{{"h.0.attn.c_attn.bias", "backbone.blocks.0.attention.qkv.bias"},
                     {"h.0.attn.c_attn.weight", "backbone.blocks.0.attention.qkv.weight"},
                     {"h.0.attn.c_proj.bias", "backbone.blocks.0.attention.proj.bias"},
                     {"h.0.attn.c_proj.weight", "backbone.blocks.0.attention.proj.weight"},
                     {"h.0.ln_1.bias", "backbone.blocks.0.attention_norm.bias"},
                     {"h.0.ln_1.weight", "backbone.blocks.0.attention_norm.weight"},
                     {"h.0.ln_2.bias", "backbone.blocks.0.mlp_norm.bias"},
                     {"h.0.ln_2.weight", "backbone.blocks.0.mlp_norm.weight"},
                     {"h.0.mlp.c_fc.bias", "backbone.blocks.0.mlp.fc1.bias"},
                     {"h.0.mlp.c_fc.weight", "backbone.blocks.0.mlp.fc1.weight"},
                     {"h.0.mlp.c_proj.bias", "backbone.blocks.0.mlp.fc2.bias"},
                     {"h.0.mlp.c_proj.weight", "backbone.blocks.0.mlp.fc2.weight"},
                     {"lm_head.weight", "backbone.tokens"},
                     {"ln_f.bias", "backbone.norm.bias"},
                     {"ln_f.weight", "backbone.norm.weight"},
                     {"wpe.weight", "backbone.positions"},
                     {"wte.weight", "backbone.tokens"}}));
}

TEST(WeightName, NumbersThatTheDtypeCannotHoldAreRefused) {
  const WeightName name{"ours", "theirs"};
  const torch::Tensor large = torch::full({2}, 1e39, torch::kFloat64);
  EXPECT_THROW(name.to_ours(large, {2}, torch::kFloat32), Error);
  EXPECT_THROW(name.to_theirs(large, torch::kBFloat16), Error);
  const torch::Tensor infinite = torch::full({2}, INFINITY, torch::kFloat64);
  EXPECT_TRUE(
      at::equal(name.to_ours(infinite, {2}, torch::kFloat32), infinite.to(torch::kFloat32)));
}

TEST(WeightFormat, EachNameIsListedOnceInBothDirections) {
  const DataShape images{.source = "test", .image = ImageShape{3, 32, 32}, .classes = 10};
  const DataShape text{.source = "test", .sequence = 8, .vocabulary = 256, .token_labels = 8};
  for (const std::string& name : members_of<WeightFormat>().names()) {
    const auto format = Registry<WeightFormat>::create(Choice<WeightFormat>(name), {});
    const Choice<Backbone> backbone{std::string_view(format->backbone())};
    std::set<std::string> ours, theirs;
    for (const WeightName& weight : format->names(backbone, Choice<Task>(format->task()),
                                                  format->task() == "lm" ? text : images)) {
      EXPECT_TRUE(theirs.insert(weight.theirs).second) << weight.theirs;
      const bool is_new = ours.insert(weight.ours).second;
      EXPECT_TRUE(is_new || weight.is_copy) << weight.ours;
    }
    EXPECT_GT(ours.size(), 80u) << name;
  }
}

TEST(WeightFormat, WeightsWithoutANameAreListed) {
  StateList model;
  model.tensors.push_back({{"backbone.a", Dtype::kF32, {1}, 0, 0}, {}});
  model.tensors.push_back({{"backbone.b", Dtype::kF32, {1}, 0, 0}, {}});
  require_all_named({{"backbone.a", "a"}, {"backbone.b", "b"}}, model);
  try {
    require_all_named({{"backbone.a", "a"}}, model);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("backbone.b"));
    EXPECT_EQ(error.code(), ExitCode::kMismatch);
  }
}

}  // namespace
}  // namespace shoal
