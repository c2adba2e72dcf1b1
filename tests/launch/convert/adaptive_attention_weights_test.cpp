#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "launch/data/recipe_source.h"
#include "launch/model/build_model.h"
#include "launch/model/model_weights.h"
#include "launch/weights/load_weights.h"
#include "tests/support/foreign_denoiser.h"
#include "tests/support/foreign_models.h"
#include "tests/support/gradient_check.h"
#include "tests/support/run_of_one_step.h"

// b images  C channels  H height  W width  N tokens  D width  h heads  U experts
namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::hf_gpt2;
using testing::kPublishedDenoiser;
using testing::public_denoiser;
using testing::relative_error;
using testing::Tensors;
using testing::timm_vit;

constexpr int64_t kHeads = 2;
constexpr int64_t kEveryKey = 20;  ///< more than the 16 tokens
const std::vector<int64_t> kBudgets{3, kEveryKey};
const std::vector<std::string> kHeadsAndKeys{"model.heads=2",
                                             "model.attention.experts=[{k: 3}, {k: 20}]"};
constexpr const char* kConfig =
    R"({"architecture": "SmallViT", "image_size": 16, "patch_size": 4, "embed_dim": 8, "depth": 2,
        "num_experts": 2, "num_heads": 2, "k_budgets": [3, 20]})";

/// The public model from its description, and from its own tensors.
struct PublicModel {
  const Tensors& weights;

  const torch::Tensor& at(const std::string& name) const { return weights.at(name); }
  torch::Tensor linear(const torch::Tensor& x, const std::string& name) const {
    return at::linear(x, at(name + ".weight"), at(name + ".bias"));
  }
  torch::Tensor norm(const torch::Tensor& x, const std::string& name) const {
    return at::layer_norm(x, {x.size(-1)}, at(name + ".weight"), at(name + ".bias"));
  }

  /// Logits below the k-th highest of their query count as minus infinity.
  torch::Tensor attend(const torch::Tensor& x_bND, const std::string& expert, int64_t k) const {
    const int64_t b = x_bND.size(0), N = x_bND.size(1), D = x_bND.size(2);
    const auto heads = [&](const char* name) {
      return linear(x_bND, expert + name).view({b, N, kHeads, D / kHeads}).permute({0, 2, 1, 3});
    };
    const double scale = std::sqrt(static_cast<double>(D / kHeads));
    const torch::Tensor logit_bhNN = heads("W_q").matmul(heads("W_k").transpose(2, 3)) / scale;
    const torch::Tensor sorted = std::get<0>(logit_bhNN.sort(-1, /*descending=*/true));
    const torch::Tensor least = sorted.narrow(-1, std::min(k, N) - 1, 1);
    const torch::Tensor share = logit_bhNN.masked_fill(logit_bhNN < least, -INFINITY).softmax(-1);
    const torch::Tensor mixed = share.matmul(heads("W_v")).permute({0, 2, 1, 3});
    return linear(mixed.reshape({b, N, D}), expert + "W_out");
  }

  torch::Tensor block(const torch::Tensor& x_bND, const std::string& name) const {
    const torch::Tensor normed = norm(x_bND, name + "norm1");
    const std::string router = name + "attn.router.routing_net.";
    const torch::Tensor weight_bNU =
        linear(linear(normed, router + "0").relu(), router + "2").softmax(-1);
    torch::Tensor mixed = torch::zeros_like(x_bND);
    for (size_t e = 0; e < kBudgets.size(); ++e) {
      const auto column = static_cast<int64_t>(e);
      mixed = mixed + weight_bNU.narrow(-1, column, 1) *
                          attend(normed, fmt::format("{}attn.experts.{}.", name, e), kBudgets[e]);
    }
    const torch::Tensor y = x_bND + linear(mixed, name + "attn.merge_proj");
    return y + linear(at::gelu(linear(norm(y, name + "norm2"), name + "ffn.0")), name + "ffn.2");
  }

  torch::Tensor restored(const torch::Tensor& image_bCHW) const {
    const torch::Tensor& stem = at("patch_embed.weight");
    const int64_t patch = stem.size(2);
    const torch::Tensor embedded =
        at::conv2d(image_bCHW, stem, at("patch_embed.bias"), {patch, patch});
    torch::Tensor x_bND = embedded.flatten(2).transpose(1, 2) + at("pos_embed");
    for (const char* name : {"blocks.0.", "blocks.1."}) x_bND = block(x_bND, name);
    return at::conv_transpose2d(x_bND.transpose(1, 2).reshape(embedded.sizes()),
                                at("patch_unembed.weight"), at("patch_unembed.bias"),
                                {patch, patch});
  }
};

/// What a checkpoint's model makes of images; its task adds the noise of its sigma.
torch::Tensor outputs_of(const std::string& run, const torch::Tensor& image_bCHW) {
  const torch::NoGradGuard no_grad;
  const CheckpointReader reader(resolve_checkpoint(run));
  const Recipe recipe =
      config::load_options_text<Recipe>(reader.manifest().recipe, "recipe").options;
  RankGrid grid = testing::self_grid();
  const BuiltModel model = build_model(recipe, make_source(recipe)->shape(), {&grid, torch::kCPU});
  load_weights(reader.path(), weights_of(model), *grid.world);
  Batch batch;
  const int64_t samples = image_bCHW.size(0);
  batch.image_bVCHW = image_bCHW.unsqueeze(1);
  batch.context.sample_b = torch::arange(samples, torch::kInt64);
  batch.context.samples_per_group = 1;
  batch.context.samples_in_step = batch.context.samples_in_micro = samples;
  return model.task->outputs(batch).view(image_bCHW.sizes());
}

class AdaptiveAttentionWeights : public testing::ForeignModels {
 protected:
  /// What refuses to export a run of these keys.
  std::string export_refusal(const std::string& recipe) {
    const testing::ScratchFolder scratch;
    const std::string run = testing::run_of_one_step(
        config::load_options_text<Recipe>(
            "data: {source: shapes, image_size: 16, normalise: {mean: [0, 0, 0], std: [1, 1, 1]},"
            "       train: {samples: 8}, valid: {samples: 8}}\n"
            "train: {batch: 4, group: 4, duration: 1step}\n" +
                recipe,
            "recipe")
            .options,
        scratch);
    try {
      export_weights({{run}, "adaptive_attention", folder_.file("back")}, out_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kMismatch) << error.what();
      EXPECT_FALSE(std::filesystem::exists(folder_.file("back")));
      return error.what();
    }
    return "nothing was refused";
  }
};

TEST_F(AdaptiveAttentionWeights, ImportedWeightsComputeWhatThePublicModelComputes) {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
    Tensors tensors = public_denoiser();
    for (auto& [name, tensor] : tensors) tensor = tensor.to(dtype);
    save(tensors, kConfig);
    import("adaptive_attention", {"task.sigma=0"});
    const torch::Tensor image = testing::some_numbers({3, 3, 16, 16}, 3).abs().to(dtype);
    const torch::Tensor restored = outputs_of(folder_.file("ours"), image);
    EXPECT_EQ(restored.scalar_type(), dtype);
    EXPECT_LT(relative_error(restored, PublicModel{tensors}.restored(image)),
              dtype == torch::kFloat64 ? 1e-12 : 1e-5);
  }
}

TEST_F(AdaptiveAttentionWeights, RoundTripsAreBitEqualWithTheConfigTheyWrote) {
  save(public_denoiser());
  import("adaptive_attention", kHeadsAndKeys);
  const std::string first = recipe();
  export_back("adaptive_attention");
  expect_equal(public_denoiser(), tensors_at(folder_.file("back")));
  EXPECT_EQ(nlohmann::json::parse(testing::read_file(folder_.file("back/config.json"))),
            nlohmann::json::parse(kConfig));
  EXPECT_TRUE(at::equal(ours("backbone.blocks.1.attention.experts.1.key.weight"),
                        public_denoiser().at("blocks.1.attn.experts.1.W_k.weight").t()));
  std::filesystem::remove_all(folder_.file("theirs"));
  std::filesystem::rename(folder_.file("back"), folder_.file("theirs"));
  import("adaptive_attention");
  EXPECT_EQ(recipe(), first);
  EXPECT_THAT(first, AllOf(HasSubstr("name: denoise"), HasSubstr("image_size: 16"),
                           HasSubstr("heads: 2"), HasSubstr("k: 20")));
}

TEST_F(AdaptiveAttentionWeights, SharesOfAnImageAreExportedAsKeys) {
  save(public_denoiser());
  import("adaptive_attention", {"model.heads=2", "model.attention.experts=[{share: 0.3}, {}]"});
  export_back("adaptive_attention");
  const auto config = nlohmann::json::parse(testing::read_file(folder_.file("back/config.json")));
  EXPECT_EQ(config.at("k_budgets"), nlohmann::json::parse("[5, 16]"));
}

TEST_F(AdaptiveAttentionWeights, HeadsAndKeysAreAskedForOrThoseOfThePublishedSizes) {
  save(public_denoiser());
  EXPECT_THAT(refusal("adaptive_attention"),
              AllOf(HasSubstr("model.heads: there is no config.json"),
                    HasSubstr("model.attention.experts: there is no config.json"),
                    HasSubstr("append model.heads=")));
  save(public_denoiser(), R"({"architecture": "SmallViT", "num_heads": 2})");
  EXPECT_THAT(refusal("adaptive_attention"),
              HasSubstr("model.attention.experts: config.json lacks k_budgets"));

  save(public_denoiser(kPublishedDenoiser));
  ::testing::internal::CaptureStderr();
  import("adaptive_attention");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("note: model.heads: 4, as in the published model"),
                    HasSubstr("note: model.attention.experts: k of 32, 64, 128, as in")));
  EXPECT_THAT(recipe(), AllOf(HasSubstr("heads: 4"), HasSubstr("k: 32"), HasSubstr("k: 128")));
  EXPECT_THAT(out_.str(), HasSubstr("599689 parameters"));
  ::testing::internal::CaptureStderr();
  import("adaptive_attention",
         {"model.heads=8", "model.attention.experts=[{k: 1}, {k: 2}, {k: 3}]"});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(recipe(), HasSubstr("heads: 8"));
}

TEST_F(AdaptiveAttentionWeights, OtherArchitecturesAreRefusedByName) {
  save(timm_vit());
  EXPECT_THAT(refusal("adaptive_attention"),
              AllOf(HasSubstr("does not hold the weights of an adaptive sparse-attention denoiser"),
                    HasSubstr("'patch_embed.weight' is missing"),
                    HasSubstr("'blocks.0.attn.experts.0.W_q.weight' is missing"),
                    HasSubstr("--as names another format")));
  save(hf_gpt2());
  EXPECT_THAT(refusal("adaptive_attention"), HasSubstr("'pos_embed' is missing"));
  save(public_denoiser());
  EXPECT_THAT(refusal("timm_vit", ExitCode::kMismatch, {"model.heads=2", "model.gelu=erf"}),
              HasSubstr("'patch_embed.proj.weight' is missing"));
}

TEST_F(AdaptiveAttentionWeights, EveryTensorThatDoesNotFitIsNamed) {
  Tensors tensors = public_denoiser();
  tensors.erase("blocks.1.attn.experts.1.W_v.bias");
  tensors["blocks.0.attn.experts.2.W_q.weight"] = torch::zeros({8, 8});
  tensors["blocks.1.attn.router.routing_net.0.weight"] = torch::zeros({5, 8});
  tensors["norm.weight"] = torch::zeros({8});
  save(tensors);
  EXPECT_THAT(
      refusal("adaptive_attention", ExitCode::kMismatch, kHeadsAndKeys),
      AllOf(HasSubstr("'blocks.1.attn.experts.1.W_v.bias' is missing, expected [8]"),
            HasSubstr("'blocks.0.attn.experts.2.W_q.weight' F32 [8, 8] is surplus"),
            HasSubstr("'blocks.1.attn.router.routing_net.0.weight' is F32 [5, 8], expected numbers "
                      "[4, 8]"),
            HasSubstr("'norm.weight' F32 [8] is surplus")));
  tensors = public_denoiser();
  tensors["pos_embed"] = torch::zeros({1, 17, 8});
  save(tensors, kConfig);
  EXPECT_THAT(refusal("adaptive_attention"), HasSubstr("17 patches make no square image"));
}

TEST_F(AdaptiveAttentionWeights, ConfigsAndKeysThatDoNotFitAreNamed) {
  save(public_denoiser(), R"({"architecture": "LargeViT", "embed_dim": 16, "dropout": 0.1})");
  EXPECT_THAT(refusal("adaptive_attention"),
              AllOf(HasSubstr("architecture is \"LargeViT\""), HasSubstr("embed_dim is 16"),
                    HasSubstr("dropout (0.1) is not supported")));
  for (const char* budgets : {"[3]", "[3, 0]", "[3, 2.5]", "[3, 1e300]"}) {
    save(public_denoiser(), fmt::format(R"({{"num_heads": 2, "k_budgets": {}}})", budgets));
    EXPECT_THAT(refusal("adaptive_attention"), HasSubstr("k_budgets is"));
  }
  save(public_denoiser(), kConfig);
  EXPECT_THAT(refusal("adaptive_attention", ExitCode::kMismatch, {"task={name: classify}"}),
              HasSubstr("task.name: classify, the weights are those of denoise"));
  EXPECT_THAT(
      refusal("adaptive_attention", ExitCode::kMismatch, {"model.attention.mixing=hard_shared_kv"}),
      HasSubstr("model.attention.mixing: hard_shared_kv"));
  EXPECT_THAT(refusal("adaptive_attention", ExitCode::kRecipe, {"model.heads=3"}),
              HasSubstr("3 heads do not divide a width of 8"));
  import("adaptive_attention", {"model.attention.mixing=hard"});
  EXPECT_THAT(recipe(), HasSubstr("mixing: hard"));
}

TEST_F(AdaptiveAttentionWeights, TrainedModelsAreExportedOnlyWhereTheProgramComputesTheSame) {
  const std::string model = "model: {backbone: adaptive_attention, width: 8, heads: 2, depth: 1";
  const std::string denoise = "}\ntask: {name: denoise}\n";
  EXPECT_EQ(export_refusal(model + denoise), "nothing was refused");
  std::filesystem::rename(folder_.file("back"), folder_.file("theirs"));
  import("adaptive_attention");
  EXPECT_THAT(recipe(), AllOf(HasSubstr("heads: 2"), HasSubstr("k: 128")));
  EXPECT_THAT(export_refusal(model + "}\ntask: {name: classify}\n"),
              HasSubstr("it has no layout for the backbone adaptive_attention with the task "
                        "classify, only for adaptive_attention with the task denoise"));
  EXPECT_THAT(export_refusal(model + ", attention: {mixing: hard}" + denoise),
              HasSubstr("model.attention.mixing: hard: "));
  EXPECT_THAT(export_refusal(model + ", attention: null" + denoise),
              HasSubstr("model.attention: null"));
  EXPECT_THAT(export_refusal(model + "}\ntask: {name: denoise, residual: true}\n"),
              HasSubstr("task.residual"));
  EXPECT_THAT(export_refusal("model: {backbone: vit, patch: 4, width: 8, heads: 2, depth: 1, "
                             "pool: mean" +
                             denoise),
              HasSubstr("it has no layout for the backbone vit with the task denoise"));
}

}  // namespace
}  // namespace shoal
