#include "launch/model/model_work.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "launch/check/check_recipe.h"
#include "models/vision/patch_embed.h"
#include "models/vision/vit_block.h"
#include "runtime/module/products.h"

namespace shoal {
namespace {

using Keys = std::vector<std::string>;

Keys followed_by(Keys first, const Keys& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// A recipe that is given by overrides alone.
CheckedRecipe checked_of(const Keys& overrides) {
  const Keys all = followed_by({"train={duration: 1step, batch: 8}"}, overrides);
  return check_recipe({"", all, {}}, config::UnsetVariable::kKeep, 1);
}

std::optional<ModelWork> work(const Keys& overrides) { return checked_of(overrides).counts.work; }

const Keys kClassifiedImages{"data={source: image_folder, classes: 1000, image_size: 224}",
                             "task={name: classify}"};

/// With ImageNet's images and classes.
std::optional<ModelWork> image_work(const Keys& overrides) {
  return work(followed_by(kClassifiedImages, overrides));
}

double giga_multiply_adds(const Keys& overrides) {
  return image_work(overrides).value().multiply_adds / 1e9;
}

// Published: 4.6 and 17.6 G (Touvron et al. 2021), of 224 x 224 pixels.
TEST(ModelWork, OfViTsIsThePublishedOne) {
  EXPECT_NEAR(
      giga_multiply_adds({"model={backbone: vit, patch: 16, width: 384, depth: 12, heads: 6, "
                          "hidden: 1536, pool: cls}"}),
      4.60, 0.02);
  EXPECT_NEAR(
      giga_multiply_adds({"model={backbone: vit, patch: 16, width: 768, depth: 12, heads: 12, "
                          "hidden: 3072, pool: cls}"}),
      17.56, 0.05);
}

// timm's table: 3.79 and 12.61 G.
TEST(ModelWork, OfMixersIsThePublishedOne) {
  EXPECT_NEAR(giga_multiply_adds({"model={backbone: mixer, patch: 16, width: 512, depth: 8, "
                                  "token_hidden: 256, channel_hidden: 2048}"}),
              3.79, 0.02);
  EXPECT_NEAR(giga_multiply_adds({"model={backbone: mixer}"}), 12.61, 0.05);
}

// Liu et al. 2022, table 12: 4.5 G.
TEST(ModelWork, OfConvNextTIsThePublishedOne) {
  EXPECT_NEAR(giga_multiply_adds({"model={backbone: convnext}"}), 4.47, 0.03);
}

// 6 FLOPs a token for each of 123.5 M weights (85 M in blocks, 38.6 M of the head), and for each
// layer's 768 x 1024 attended pairs: half of 2 x 768 x 1024.
TEST(ModelWork, OfGpt2IsSixFlopsAWeightAndCausalAttention) {
  const ModelWork gpt2 =
      work({"data={source: text, sequence: 1024, train: {files: [a]}, valid: {files: [b]}, "
            "tokenizer: {name: gpt2, vocab: v, merges: m}}",
            "model={backbone: gpt2}", "task={name: lm}"})
          .value();
  const double in_blocks = 12.0 * 12 * 768 * 768, head = 50257.0 * 768;
  const double attention = 12.0 * 768 * 1024;
  EXPECT_DOUBLE_EQ(gpt2.multiply_adds, 1024 * (in_blocks + head + attention));
  EXPECT_DOUBLE_EQ(gpt2.training_flops, 6 * gpt2.multiply_adds);
}

/// GPT-2 small with parameters frozen.
ModelWork frozen_gpt2(const std::vector<std::string>& frozen) {
  Keys keys{
      "data={source: text, sequence: 1024, train: {files: [a]}, valid: {files: [b]}, "
      "tokenizer: {name: gpt2, vocab: v, merges: m}}",
      "model={backbone: gpt2}", "task={name: lm}"};
  std::string rules;
  for (const std::string& match : frozen) rules += "{match: '" + match + "', freeze: true}, ";
  keys.push_back("optimizer={name: adamw, lr: 1e-3, rules: [" + rules + "]}");
  return work(keys).value();
}

constexpr double kGptBlockWeights = 1024.0 * 12 * 768 * 768, kGptHead = 1024.0 * 50257 * 768;
constexpr double kGptAttention = 1024.0 * 768 * 1024;  // of a block

TEST(ModelWork, OfFrozenLayersBelowTheFirstTrainedOneIsTheForwardPassAlone) {
  const ModelWork gpt2 = frozen_gpt2({"backbone.tokens", "backbone.positions", "*.blocks.0.*",
                                      "*.blocks.1.*", "*.blocks.2.*", "*.blocks.3.*"});
  // The head is the frozen token embedding, and what is below it is trained.
  EXPECT_DOUBLE_EQ(gpt2.training_flops,
                   (2 * 4 + 6 * 8) * (kGptBlockWeights + kGptAttention) + 4 * kGptHead);
}

TEST(ModelWork, OfFrozenLayersAboveATrainedOneHasTheGradientsOfTheirInputs) {
  const ModelWork gpt2 = frozen_gpt2({"*.blocks.10.*", "*.blocks.11.*"});
  EXPECT_DOUBLE_EQ(gpt2.training_flops,
                   (6 * 10 + 4 * 2) * kGptBlockWeights + 6 * 12 * kGptAttention + 6 * kGptHead);
  // Biases are behind the products of their layer.
  const ModelWork biases =
      frozen_gpt2({"backbone.tokens", "backbone.positions", "*.weight", "*.blocks.0.attention*"});
  const double first_mlp = 1024.0 * 8 * 768 * 768;
  EXPECT_DOUBLE_EQ(biases.training_flops,
                   4 * (12 * kGptBlockWeights + kGptHead) + 6 * 12 * kGptAttention -
                       2 * (kGptBlockWeights - first_mlp) - 4 * kGptAttention);
}

TEST(ModelWork, OfAFrozenTiedHeadAboveATrainedNormHasTheGradientOfItsInput) {
  const ModelWork gpt2 = frozen_gpt2({"backbone.tokens", "backbone.positions", "*.blocks.*"});
  EXPECT_DOUBLE_EQ(gpt2.training_flops, 2 * 12 * (kGptBlockWeights + kGptAttention) + 4 * kGptHead);
}

TEST(ModelWork, OfADownsampleIsBetweenItsStages) {
  const auto convnext = [](const std::string& trained) {
    return image_work({"model={backbone: convnext, depths: [1, 1], widths: [8, 16]}",
                       "optimizer={name: adamw, lr: 1e-3, rules: [{match: '*', freeze: true}, "
                       "{match: '" +
                           trained + "', freeze: false}]}"})
        .value();
  };
  constexpr double kPositions = 56.0 * 56, kNext = 28.0 * 28, kHead = 16.0 * 1000;
  constexpr double kStem = kPositions * 4 * 4 * 3 * 8, kDownsample = kNext * 2 * 2 * 8 * 16;
  constexpr double kFirst = kPositions * (49 * 8 + 8 * 8 * 8),
                   kSecond = kNext * (49 * 16 + 8 * 16 * 16);
  const ModelWork downsample = convnext("backbone.downsamples.0.*");
  EXPECT_DOUBLE_EQ(downsample.multiply_adds, kStem + kFirst + kDownsample + kSecond + kHead);
  EXPECT_DOUBLE_EQ(downsample.training_flops,
                   2 * (kStem + kFirst) + 6 * kDownsample + 4 * (kSecond + kHead));
  const ModelWork last = convnext("backbone.blocks.1.*");
  const double convolution = kNext * 49 * 16;
  EXPECT_DOUBLE_EQ(last.training_flops, 2 * (kStem + kFirst + kDownsample) + 4 * convolution +
                                            6 * (kSecond - convolution) + 4 * kHead);
}

const Keys kCountedVit{
    "model={backbone: vit, patch: 16, width: 64, depth: 2, heads: 2, hidden: 128}"};
constexpr double kImageTokens = 197;  // with the class token
constexpr double kCountedStem = 196.0 * 3 * 16 * 16 * 64;

TEST(ModelWork, CountsTheExpertsThatATokenIsRoutedTo) {
  const double dense = image_work(kCountedVit).value().multiply_adds;
  const Keys experts = followed_by(
      kCountedVit, {"model.moe={router: {name: top_k, k: 2}, experts: {count: 8, hidden: 128}}",
                    "model.sparse_blocks={from: 1, to: 1}"});
  const double one_mlp = kImageTokens * 2 * 64 * 128, router = kImageTokens * 64 * 8;
  EXPECT_DOUBLE_EQ(image_work(experts).value().multiply_adds, dense + one_mlp + router);
  EXPECT_DOUBLE_EQ(image_work(experts).value().routed_numbers, kImageTokens * 2 * 64);
}

TEST(ModelWork, KnowsTheFlopsThatDroppedChoicesSave) {
  const auto routed_flops = [](const Keys& more) {
    const Keys experts = followed_by(
        kCountedVit, {"model.moe={router: {name: top_k, k: 2}, experts: {count: 8, hidden: 128}}",
                      "model.sparse_blocks={from: 1, to: 1}"});
    return image_work(followed_by(experts, more)).value().routed_training_flops;
  };
  const double products = kImageTokens * 2 * (2 * 64 * 128);
  EXPECT_EQ(routed_flops({}), (std::map<std::string, double>{{"blocks.1.moe", 6 * products}}));
  EXPECT_EQ(routed_flops({"optimizer={name: adamw, lr: 1e-3, rules: [{match: '*.experts.*', "
                          "freeze: true}]}"}),
            (std::map<std::string, double>{{"blocks.1.moe", 4 * products}}));
}

TEST(ModelWork, CountsTheTokensThatExpertsChoose) {
  const double dense = image_work(kCountedVit).value().multiply_adds;
  const Keys chosen = followed_by(kCountedVit, {"model.moe={router: {name: expert_choice, k: 1, "
                                                "factor: 2}, experts: {count: 8, hidden: 128}}",
                                                "model.sparse_blocks={from: 1, to: 1}"});
  const double one_mlp = kImageTokens * 2 * 64 * 128, router = kImageTokens * 64 * 8;
  EXPECT_DOUBLE_EQ(image_work(chosen).value().multiply_adds, dense + one_mlp + router);
  EXPECT_DOUBLE_EQ(image_work(chosen).value().routed_numbers, kImageTokens * 2 * 64);
}

// Of 6 units with 3 slots each: logits, mixing into slots and out of them, 4 MLPs, and 2 memories
// that compare 64 keys and add up 4 values.
TEST(ModelWork, CountsANexusLayer) {
  const double dense = image_work(kCountedVit).value().multiply_adds;
  const Keys nexus =
      followed_by(kCountedVit, {"model.nexus={experts: {count: 4, hidden: 128}, slots: 3, "
                                "memory: {count: 2, keys: 64, k: 4}}",
                                "model.sparse_blocks={from: 1, to: 1}"});
  const double mlp = 2 * 64 * 128, memory = (64 + 4) * 64;
  const double mixing = 3 * kImageTokens * 6 * 3 * 64;
  EXPECT_DOUBLE_EQ(image_work(nexus).value().multiply_adds,
                   dense - kImageTokens * mlp + mixing + 3 * (4 * mlp + 2 * memory));
}

/// Multiply-adds of a decoder with one block, 64 wide, with 1024 tokens, 16 of which are anchors.
double gated_work(const std::string& gate) {
  return work({"data={source: text, sequence: 1024, train: {files: [a]}, valid: {files: [b]}, "
               "tokenizer: {name: gpt2, vocab: v, merges: m}}",
               "model={backbone: hspmn, width: 64, depth: 1, heads: 4, kv_heads: 2, gate: "
               "{anchor_every: 64, rate: 0.25, " +
                   gate + "}}",
               "task={name: lm}"})
      .value()
      .multiply_adds;
}

// Queries, outputs and half of all pairs, which take two products.
constexpr double kOpenToken = 2.0 * 64 * 64 + 1024 * 64;

TEST(ModelWork, CountsTheTokensThatAGateOpens) {
  const double open = 16 + 0.25 * (1024 - 16);  // 268
  const double alone = gated_work("explore_fraction: 0");
  EXPECT_DOUBLE_EQ(gated_work("explore_fraction: 0.25") - alone, 0.25 * (1024 - open) * kOpenToken);
  // A random gate does not explore.
  EXPECT_EQ(gated_work("select: random, explore_fraction: 0.25"),
            gated_work("select: random, explore_fraction: 0"));
  // Half of a rate of 0.25 of 1024 tokens, the anchors among them.
  EXPECT_DOUBLE_EQ(alone - gated_work("explore_fraction: 0, capacity: 0.5"),
                   (open - 128) * kOpenToken);
}

TEST(ModelWork, CountsWeightsThatAreOn) {
  const double dense = image_work(kCountedVit).value().multiply_adds;
  const Keys sparse = followed_by(
      kCountedVit, {"sparsity={density: 0.25, pattern: {name: unstructured}, layers: [mlp]}"});
  EXPECT_DOUBLE_EQ(dense - image_work(sparse).value().multiply_adds,
                   0.75 * 2 * kImageTokens * 2 * 64 * 128);
}

TEST(ModelWork, OfWhatIsNotTrainedIsTheForwardPassAlone) {
  const ModelWork probe =
      image_work(followed_by(kCountedVit, {"task={name: linear_probe}"})).value();
  const double head = 64 * 1000;
  EXPECT_DOUBLE_EQ(probe.training_flops, 2 * (probe.multiply_adds - head) + 4 * head);
}

TEST(ModelWork, OfMocoIsOfTwoViewsAndOfKeysTheForwardPassAlone) {
  const double head = 64 * 1000;
  const double backbone = image_work(kCountedVit).value().multiply_adds - head;
  const ModelWork moco =
      image_work(followed_by(kCountedVit, {"task={name: moco_v3, hidden: 32, out: 16}"})).value();
  const double projector = 64 * 32 + 32 * 32 + 32 * 16, predictor = 16 * 32 + 32 * 16;
  EXPECT_DOUBLE_EQ(moco.multiply_adds, 2 * (2 * (backbone + projector) + predictor));
  EXPECT_DOUBLE_EQ(moco.training_flops,
                   2 * (6 * (backbone + projector + predictor) + 2 * (backbone + projector) -
                        2 * kCountedStem));  // the images get no gradient
}

TEST(ModelWork, OfTheDenoiserIsThatOfItsExpertsAndDenseLayers) {
  const ModelWork denoiser =
      work({"data={source: cifar, normalise: {mean: [0, 0, 0], std: [1, 1, 1]}}",
            "model={backbone: adaptive_attention}", "task={name: denoise}"})
          .value();
  constexpr double kPatches = 64, kWidth = 128, kPixels = 48;
  // Query, key, value and output of each of three experts, logits and sums over all keys.
  const double experts = 3 * kPatches * (4 * kWidth * kWidth + 2 * kPatches * kWidth);
  const double merge = kPatches * kWidth * kWidth, mlp = kPatches * 4 * kWidth * kWidth;
  const double ends = 2 * kPatches * kPixels * kWidth;
  const double known = 2 * (experts + merge + mlp) + ends;
  EXPECT_GE(denoiser.multiply_adds, known);
  EXPECT_LE(denoiser.multiply_adds, 1.05 * known);  // and the routers'
}

// In each of two blocks all 64 patches are compared with 16 means of blocks of 2 x 2.
TEST(ModelWork, CountsTheLogitsOfPooledBlocks) {
  const auto of_candidates = [](const std::string& candidates) {
    return work({"data={source: cifar, normalise: {mean: [0, 0, 0], std: [1, 1, 1]}}",
                 "model={backbone: adaptive_attention, depth: 2, width: 128, attention: {experts: "
                 "[{k: 16}, {k: 16, candidates: " +
                     candidates + "}]}}",
                 "task={name: denoise}"})
        .value()
        .multiply_adds;
  };
  EXPECT_DOUBLE_EQ(
      of_candidates("{from: pooled, block: 2, keep: 4}") - of_candidates("{from: all}"),
      2.0 * 64 * 16 * 128);
}

TEST(ModelWork, IsNotKnownOfABackboneThatDoesNotCount) {
  EXPECT_EQ(image_work({"model={backbone: flat_pixels}"}), std::nullopt);
}

/// Made of layers that other backbones have; it says how many tokens they get, and no more.
class PlainBackbone : public Backbone, public CountsProducts {
 public:
  struct Options {
    static constexpr auto fields() { return std::tuple{}; }
  };
  PlainBackbone(const Options&, const Context& context) {
    const torch::TensorOptions& tensor = context.build.tensor_options;
    register_module("stem", PatchEmbed(3, 16, 8, tensor));
    register_module("block", VitBlock(VitBlockImpl::Sizes{2, {.width = 8, .hidden = 20}, 0.0},
                                      FeedForwardOptions{}, context.build));
  }
  ModelOutput forward(const ModelInput&, const StepContext&) override { return {}; }
  int64_t feature_width() const override { return 8; }
  void list_products(double, ProductList& list) const override { list.visit_parts(*this, 196); }
};
const Registration<Backbone, PlainBackbone> registered_plain{"plain_layers", "for this test"};

TEST(ModelWork, OfANewBackboneIsThatOfItsLayers) {
  const ModelWork plain = image_work({"model={backbone: plain_layers}"}).value();
  const double stem = 196.0 * 3 * 16 * 16 * 8, attention = 196.0 * (4 * 8 * 8 + 2 * 196 * 8);
  const double mlp = 196.0 * 2 * 8 * 20, head = 8.0 * 1000;
  EXPECT_EQ(plain.multiply_adds, stem + attention + mlp + head);
  EXPECT_EQ(plain.training_flops, 6 * plain.multiply_adds - 2 * stem);
}

/// Weights that no list names, or that one names twice.
Keys miscounted(const Keys& overrides) {
  const CheckedRecipe recipe = checked_of(overrides);
  const BuiltModel model = build_model(recipe.loaded.options, recipe.source->shape());
  std::multiset<const void*> listed;
  for (const auto& child : model.task->children()) {
    ProductList list;
    list.visit(*child, 1);
    for (const Product& product : list.products()) {
      listed.insert(product.weight.unsafeGetTensorImpl());
    }
  }
  Keys wrong;
  for (const Parameter& parameter : model.parameters) {
    if (listed.count(parameter.tensor.unsafeGetTensorImpl()) != 1) wrong.push_back(parameter.name);
  }
  return wrong;
}

TEST(ModelWork, EveryParameterIsListedOnce) {
  const Keys text{
      "data={source: text, sequence: 64, train: {files: [a]}, valid: {files: [b]}, "
      "tokenizer: {name: gpt2, vocab: v, merges: m}}",
      "task={name: lm, tied: false}"};
  const std::string small = "width: 8, depth: 2, heads: 2, ";
  const std::string experts = "moe: {experts: {count: 4}, shared: {count: 1}}";
  const std::string nexus = "nexus: {experts: {count: 2}, memory: {count: 2, keys: 8}}";
  const std::string gate = "gate: {select: topk_predictor, temperature: learned}, ";
  for (const Keys& keys : {
           followed_by(text, {"model={backbone: gpt2, " + small + experts + "}"}),
           followed_by(text, {"model={backbone: hspmn, " + small + "kv_heads: 1, " + gate +
                              "dense_blocks: [1], " + experts + "}"}),
           followed_by(kClassifiedImages,
                       {"model={backbone: vit, layer_scale: 0.1, " + small + nexus + "}"}),
           followed_by(
               kClassifiedImages,
               {"model={backbone: convnext, depths: [1, 1], widths: [8, 16], " + nexus + "}"}),
           followed_by(kClassifiedImages, {"model={backbone: sparse_mlp, width: 8}"}),
           followed_by(kClassifiedImages,
                       {"model={backbone: mixer, width: 8}", "task={name: moco_v3}"}),
           Keys{"data={source: cifar, normalise: {mean: [0, 0, 0], std: [1, 1, 1]}}",
                "model={backbone: adaptive_attention, attention: {mixing: hard_shared_kv}}",
                "task={name: denoise}"},
       }) {
    EXPECT_EQ(miscounted(keys), Keys{}) << keys.back();
  }
}

}  // namespace
}  // namespace shoal
