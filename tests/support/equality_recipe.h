#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "launch/recipe/recipe.h"
#include "tests/support/equality_text.h"

namespace shoal::testing {

/// A tiny Sparse-MLP in float64 with experts in both stages; 4 routing groups of 2 samples a step.
inline const std::string kEqualityRecipe = R"(
run: {seed: 1}
data:
  source: shapes
  image_size: 8
  classes: 3
  train: {samples: 40}
  valid: {samples: 11}
  augment: {crop_padding: 1, flip: true}
model:
  backbone: sparse_mlp
  patch: 4
  width: 8
  dense_blocks: 1
  token_hidden: 6
  channel_hidden: 12
  sparse_blocks: 1
  sparse:
    token_moe:
      router: {name: top_k, k: 1, noise: none}
      losses: [{name: importance, weight: 0.1, scope: group}]
      experts: {count: 4, hidden: 6}
    channel_moe:
      router: {name: top_k, k: 2, noise: none}
      losses: [{name: importance, weight: 0.1, scope: group}]
      experts: {count: 5, hidden: 6}
task: {name: classify, label_smoothing: 0.1}
optimizer: {name: sgd, lr: 0.02}
schedule: {name: constant}
train: {duration: 5step, batch: 8, group: 2, precision: float64}
parallel: {uneven: true}
)";

/// The recipe above with overrides, as options.
inline Recipe equality_recipe(const std::vector<std::string>& overrides = {}) {
  return config::load_options_text<Recipe>(kEqualityRecipe, "test", {"", overrides, nullptr})
      .options;
}

/// Overrides, those of `later` after those of `overrides`.
inline std::vector<std::string> joined(std::vector<std::string> overrides,
                                       const std::vector<std::string>& later) {
  overrides.insert(overrides.end(), later.begin(), later.end());
  return overrides;
}

/// Overrides: both stages take few rows a unit, in this order.
inline std::vector<std::string> capped(const std::string& order) {
  std::vector<std::string> overrides;
  for (const char* stage : {"token_moe", "channel_moe"}) {
    overrides.push_back(fmt::format(
        "model.sparse.{}.capacity={{mode: capped, factor: 0.7, min: 1, order: {}}}", stage, order));
  }
  return overrides;
}

/// Overrides: importance-score routing with drops in the token stage, noise in both.
inline std::vector<std::string> noisy() {
  std::vector<std::string> overrides;
  overrides.emplace_back(
      "model.sparse.token_moe.router={name: importance_score, k: 1, drop: 0.25}");
  overrides.emplace_back("model.sparse.channel_moe.router.noise=gaussian");
  return overrides;
}

/// An override: this router and these losses in the channel stage.
inline std::string channel_moe(const std::string& router, const std::string& losses = "") {
  return fmt::format(
      "model.sparse.channel_moe={{router: {{{}}}, losses: [{}], experts: {{count: 5, hidden: 6}}}}",
      router, losses);
}

/// An override: importance and load loss of this scope in the channel stage, with noise.
inline std::string losses(const std::string& scope) {
  return channel_moe("name: top_k, k: 2, noise: gaussian",
                     fmt::format("{{name: importance, weight: 0.1, scope: {0}}}, {{name: load, "
                                 "weight: 0.1, scope: {0}}}",
                                 scope));
}

/// One way to train that must not depend on ranks.
struct EqualityCase {
  std::string name;
  std::vector<std::string> overrides;
  /// Parameters whose true gradient is zero, as `skip_weights` of differences(): what reaches them
  /// is rounding, which adaptive optimizers blow up to steps of full length.
  std::vector<std::string> noise_weights;
  int64_t steps = 5;  ///< to train

  friend std::ostream& operator<<(std::ostream& out, const EqualityCase& test) {
    return out << test.name;
  }
};

/// Overrides of the padded mode, beside those of `capped`.
inline std::vector<std::string> padded() {
  std::vector<std::string> overrides = capped("slot_major");
  for (const char* stage : {"token_moe", "channel_moe"}) {
    overrides.push_back(fmt::format("model.sparse.{}.capacity.mode=padded", stage));
  }
  return overrides;
}

/// Three micro-steps of three routing groups each: of four ranks one has no samples.
inline std::vector<std::string> accumulated(const std::vector<std::string>& more = {}) {
  return joined({"train.batch=18", "train.accumulate=3"}, more);
}

inline constexpr const char* kManyExperts = "model.sparse.channel_moe.experts.count=64";
inline constexpr double kClipNorm = 0.05;
inline const std::string kClip = fmt::format("train.clip_norm={}", kClipNorm);
inline constexpr double kClipMaxNorm = 0.005;

/// Overrides: clipping by the largest absolute value.
inline std::vector<std::string> clipped_by_largest() {
  return {"train.clip_norm_type=inf", fmt::format("train.clip_norm={}", kClipMaxNorm)};
}

/// An override for each optimizer, with defaults but for rates.
inline std::vector<std::pair<std::string, std::string>> equality_optimizers() {
  return {{"sgd", "optimizer={name: sgd, lr: 0.02, momentum: 0.9}"},
          {"adamw", "optimizer={name: adamw, lr: 1e-2, weight_decay: 0.1}"},
          {"lamb", "optimizer={name: lamb, lr: 1e-2, weight_decay: 0.1}"}};
}

/// An optimizer's override with rules for some parameters: frozen experts behind a frozen stem, and
/// rates and decays of their own.
inline std::string with_rules(const std::string& optimizer) {
  return optimizer.substr(0, optimizer.size() - 1) +
         ", rules: [{match: '*.bias', lr_scale: 0.5, weight_decay: 0.05}, "
         "{match: '*.moe_s.*', weight_decay: 0}, {match: '*.moe_c.experts.*', freeze: true}, "
         "{match: '*.stem.*', freeze: true}]}";
}

/// Experts in place of MLPs: five, which no number of ranks here divides but one.
inline const std::string kBlockExperts =
    "moe: {router: {name: top_k, k: 2, noise: gaussian}, losses: [{name: importance, weight: 0.1, "
    "scope: group}], experts: {count: 5, hidden: 6}}";

/// Experts chosen by vocabulary id, for tokens that have one.
inline const std::string kHashedExperts =
    "moe: {router: {name: hash, k: 2}, experts: {count: 5, hidden: 6}}";

/// Experts and memory units behind one soft router in place of MLPs, five units in all.
inline const std::string kBlockNexus =
    "nexus: {experts: {count: 3, hidden: 6}, memory: {count: 2, keys: 7, k: 2}, slots: 2}";

/// An override: a ViT with stochastic depth in place of the Sparse-MLP.
inline std::string vit(const std::string& keys = "pool: cls") {
  return fmt::format(
      "model={{backbone: vit, patch: 4, width: 8, depth: 2, heads: 2, hidden: 12, drop_path: 0.3, "
      "{}}}",
      keys);
}

/// An override: a ConvNeXt in place of the Sparse-MLP.
inline std::string convnext(const std::string& keys) {
  return fmt::format(
      "model={{backbone: convnext, stem_patch: 2, depths: [1, 1], widths: [4, 8], expansion: 2, "
      "drop_path: 0.3, {}}}",
      keys);
}

/// Overrides: a denoiser with three attention experts, more than two ranks divide, and these keys
/// of `attention`.
inline std::vector<std::string> denoiser(const std::string& attention) {
  return {
      "data.normalise={mean: [0, 0, 0], std: [1, 1, 1]}", "task={name: denoise, sigma: 0.2}",
      fmt::format("model={{backbone: adaptive_attention, patch: 2, width: 8, depth: 2, heads: 2, "
                  "attention: {{experts: [{{k: 3}}, {{share: 0.5}}, {{candidates: {{from: window, "
                  "window: 3}}}}], {}}}}}",
                  attention)};
}

/// Denoisers; in hard mixing few tokens of an image are routed to an expert, and some to none.
inline std::vector<EqualityCase> denoiser_cases() {
  const std::string losses =
      "losses: [{name: kl_uniform, weight: 0.1, scope: global}, {name: switch, weight: 0.1}, "
      "{name: z, weight: 0.1, scope: sequence}, {name: entropy, weight: 0.1}]";
  return {{"DenoiserSoft", denoiser(losses), {}},
          {"DenoiserHard", denoiser("mixing: hard, " + losses), {}},
          {"DenoiserHardWithSharedKeys", denoiser("mixing: hard_shared_kv, " + losses), {}},
          {"AccumulationOfDenoiserHardAfterSoftSteps",
           accumulated(denoiser("mixing: hard, soft_steps: 2, " + losses)),
           {}},
          {"DenoiserHardByCost",
           joined(denoiser("mixing: hard, router: {name: mlp, k: 2, noise: gaussian}"),
                  {"parallel.placement=by_cost", "task.most_sigma=0.4", "task.residual=true"}),
           {}}};
}

/// Models of tokens.
inline std::vector<EqualityCase> sequence_cases() {
  return {
      {"Gpt2", gpt2(), {}},
      {"AccumulationOfGpt2", accumulated(gpt2()), {}},
      {"Gpt2WithExperts", gpt2(kBlockExperts), {}},
      {"AccumulationOfGpt2WithExperts", accumulated(gpt2(kBlockExperts)), {}},
      {"Gpt2WithHashByToken", gpt2(kHashedExperts), {}},
      {"Answers", answers(), {}},
      {"AccumulationOfAnswersWithExperts", accumulated(answers(kBlockExperts)), {}},
      {"ExpressionsByTheirMean", expressions("mean"), {}},
      {"AccumulationOfExpressionsWithExperts", accumulated(expressions("last", kBlockExperts)), {}},
      {"ModernDecoder", gpt2(kModernDecoder), {}},
      {"ModernDecoderWithExperts", gpt2(kModernDecoder + ", " + kBlockExperts), {}},
      {"Hspmn", with_hspmn(text_data()), {}},
      {"HspmnWithExperts", with_hspmn(text_data(), "rate: 0.4", kBlockExperts), {}},
      {"AccumulationOfHspmnWithExperts",
       accumulated(with_hspmn(answers(), "rate: 0.4, temperature: learned", kBlockExperts)),
       {}},
      {"HspmnInBlocksWithCapacity",
       with_hspmn(answers(), "rate: 0.4, capacity: 1.0, block: 2, noise: gumbel"),
       {}},
      {"HspmnByPredictor", with_hspmn(text_data(), "rate: 0.4, select: topk_predictor"), {}},
      {"HspmnOfExpressionsByTopK",
       with_hspmn(expressions("mean"), "rate: 0.4, select: topk", "causal: false"),
       {}},
      {"HspmnWithDenseBlocks",
       with_hspmn(expressions("last"), "rate: 0.4, select: random", "dense_blocks: [1]"),
       {}}};
}

/// An override: sparse layers with masks of this pattern, `unstructured` or `block, size: 2`, that
/// are updated in steps 2 and 4 of 5.
inline std::string sparse(const std::string& pattern, const std::string& rule = "rigl",
                          const std::string& keys = "density: 0.5") {
  return fmt::format(
      "sparsity={{{}, pattern: {{name: {}}}, rule: {{name: {}, every: 2step, fraction: 0.5, until: "
      "100%}}}}",
      keys, pattern, rule);
}

/// An override: sparse layers whose cells are chosen softly in the first three of five steps.
inline std::string sparse_by_choice(const std::string& pattern,
                                    const std::string& keys = "permutation: {name: none}",
                                    const std::string& until = "60%") {
  return fmt::format(
      "sparsity={{density: 0.4, {}, pattern: {{name: {}}}, rule: {{name: soft_top_k, lr: 0.05, "
      "temperature: 1.0, until: {}}}}}",
      keys, pattern, until);
}

/// An override: experts whose inputs and outputs are powers of 2.
inline const std::string kSmallExperts = "model.sparse.channel_moe.experts.hidden=4";

/// Keys of `sparsity` for permutations of switches, which become hard at the fourth step of 5, in
/// experts as kSmallExperts has them and in a dense layer.
inline std::string powers_of_two(const std::string& permutation, const std::string& dense,
                                 const std::string& keys = "") {
  return fmt::format(
      "density: 0.5, layers: [{}, moe_c.experts], permutation: {{name: {}, lr: 0.2, until: 80%{}}}",
      dense, permutation, keys);
}

/// An override: the linear layers that are no experts sparse, their products by sparse kernels, in
/// an order of this kind.
inline std::string sparse_by_kernels(const std::string& pattern, const std::string& rule,
                                     const std::string& order = "name: random") {
  return sparse(
      pattern, rule,
      "density: 0.4, layers: [stem, blocks.0], execution: sparse, permutation: {" + order + "}");
}

/// Each pattern once and each rule, dense layers and experts, with every way to share the work.
inline std::vector<EqualityCase> sparse_cases() {
  const std::string adamw = equality_optimizers()[1].second;
  const std::string mest = "{name: mest, every: 2step, extra: 0.1, half_from: 50%, until: 100%}";
  return {{"SparseByRigL", {sparse("unstructured"), adamw}, {}},
          {"SparseBySet", {sparse("unstructured", "set"), adamw}, {}},
          {"SparseByMest", {"sparsity={density: 0.5, rule: " + mest + "}", adamw}, {}},
          {"SparseByMestAboveTheDensity",
           {"sparsity={density: 0.5, rule: {name: mest, mode: em_s, every: 2step, extra: 0.1, "
            "half_from: 50%, until: 80%}}",
            adamw},
           {}},
          {"SparseByCht", {sparse("unstructured", "cht"), adamw}, {}},
          {"SparseByChtS",
           {sparse("unstructured", "cht_s, chain_removal: true",
                   "density: 0.4, permutation: {name: random}"),
            adamw},
           {}},
          {"SparseWithStepsOfEachWeight",
           accumulated({sparse("unstructured", "cht, stop_overlap: 0.5"),
                        "optimizer={name: adamw, lr: 1e-2, weight_decay: 0.1, entry_steps: true}",
                        "parallel.shard_optimizer=true"}),
           {}},
          {"SparseInBlocks", {sparse("block, size: 2"), adamw}, {}},
          {"SparseNOfM", {sparse("n_m, of: 4", "set"), adamw}, {}},
          {"SparseWithConstantFanIn", {sparse("constant_fan_in, ablate_below: 0.3"), adamw}, {}},
          {"SparseInDiagonals", {sparse("diagonal", "rigl", "density: 0.4"), adamw}, {}},
          {"SparseInShuffledBlocks", {sparse("shuffled_block, size: 2"), adamw}, {}},
          {"SparseBand", {sparse("banded"), adamw}, {}},
          {"SparseButterfly",
           {sparse("butterfly, grid: 4", "set",
                   "density: 0.75, layers: [channel_mlp.fc1, moe_c.experts]"),
            adamw, kSmallExperts},
           {}},
          {"SparseButterflyAndLowRank",
           {sparse("butterfly, grid: 4, low_rank: 0.3", "set",
                   "density: 0.75, layers: [channel_mlp.fc1]"),
            adamw},
           {}},
          {"SparseWithShardedOptimizer",
           accumulated({sparse("unstructured", "rigl", "density: 0.5, distribution: erk"), adamw,
                        kClip, "parallel.shard_optimizer=true", "train.average={decay: 0.6}"}),
           {}},
          {"SparseInSoftDiagonals", {sparse_by_choice("diagonal"), adamw}, {}},
          {"SparseInSoftBlocksInALearnedOrder",
           accumulated({sparse_by_choice("block, size: 2",
                                         "permutation: {name: learned, lr: 0.05, until: 80%}"),
                        adamw, "parallel.shard_optimizer=true", "train.average={decay: 0.6}"}),
           {}},
          {"SparseDenoiser",
           joined(denoiser("mixing: hard"), {sparse("unstructured"), adamw}),
           {"qkv.bias[2/3]", "key.bias"}}};
}

/// Each kind of permutation of sparse layers.
inline std::vector<EqualityCase> permuted_cases() {
  const std::string adamw = equality_optimizers()[1].second;
  return {{"SparseInARandomOrder",
           {sparse("diagonal", "rigl", "density: 0.4, permutation: {name: random}"), adamw},
           {}},
          {"SparseInALearnedOrder",
           {sparse("block, size: 2", "set",
                   "density: 0.5, permutation: {name: learned, lr: 0.05, groups: 2, until: 80%}"),
            adamw},
           {}},
          {"SparseInALearnedOrderOfOutputs",
           accumulated({sparse("banded", "rigl",
                               "density: 0.5, permutation: {name: learned, lr: 0.05, axis: "
                               "row, until: 60%}"),
                        adamw, "parallel.shard_optimizer=true"}),
           {}},
          {"SparseInAKaleidoscopesOrder",
           {sparse("diagonal", "rigl", powers_of_two("kaleidoscope", "channel_mlp.fc1")), adamw,
            kSmallExperts},
           {}},
          {"SparseInABenesNetworksOrderOfOutputs",
           accumulated({sparse("unstructured", "set",
                               powers_of_two("benes", "channel_mlp.fc2",
                                             ", axis: row, groups: 2, near: random")),
                        adamw, kSmallExperts, "parallel.shard_optimizer=true"}),
           {}},
          {"SparseByKernels", {sparse_by_kernels("diagonal", "rigl"), adamw}, {}},
          {"SparseByKernelsInALearnedOrder",
           {sparse_by_kernels("unstructured", "set", "name: learned, lr: 0.05, until: 40%"), adamw},
           {}}};
}

/// Overrides: MoCo v3 with narrow heads, two views of each image that differ.
inline std::vector<std::string> moco(const std::vector<std::string>& more = {}) {
  return joined({"task={name: moco_v3, hidden: 12, out: 6, temperature: 0.5, momentum: 0.9}",
                 "data.augment.transforms=[{name: solarise, probability: {views: [0, 0.5]}}]"},
                more);
}

/// Pretraining. Norms of the projector take away what the last norm's bias adds to all samples, and
/// the predictor's first norm has a mean of zero. Norms over so few samples let rounding grow,
/// hence small learning rates.
inline std::vector<EqualityCase> moco_cases() {
  const std::string adamw = "optimizer={name: adamw, lr: 1e-4, weight_decay: 0.1}";
  const std::string frozen_stem =
      "optimizer={name: sgd, lr: 0.005, rules: [{match: 'backbone.stem.*', freeze: true}]}";
  const std::vector<std::string> zero{"predictor.norm1.running_mean"};
  const std::vector<std::string> constant =
      joined(zero, {"backbone.norm.bias", "token_mlp.fc2.bias"});
  return {{"Moco", moco(), zero},
          {"MocoByAdamW", moco({adamw, kClip}), constant},
          {"MocoByLamb", moco({"optimizer={name: lamb, lr: 1e-5, weight_decay: 0.1}"}), constant},
          {"MocoWithNoiseAndImportanceDrops", moco(noisy()), zero},
          {"MocoWithGlobalLossesAndABias",
           moco({channel_moe("name: sigmoid, k: 2, bias: {rate: 0.05}",
                             "{name: switch, weight: 0.1, scope: global}"),
                 "optimizer.lr=0.005"}),
           zero},
          {"MocoOfVitWithFrozenStem",
           moco({vit(kBlockExperts + ", pool: cls, positions: sin_cos"), frozen_stem}), zero},
          {"MocoOfVitWithNexus", moco({vit(kBlockNexus + ", pool: mean")}), zero},
          {"MocoSparse", moco({sparse("unstructured"), "parallel.shard_optimizer=true"}), zero},
          {"LinearProbe", joined(noisy(), {"task={name: linear_probe}"}), {}}};
}

inline std::vector<EqualityCase> equality_cases() {
  std::vector<EqualityCase> cases{
      {"DefaultRouting", {}, {}},
      {"OrderSlotMajor", capped("slot_major"), {}},
      {"OrderBatchPriority", capped("batch_priority"), {}},
      {"OrderProbability", capped("probability"), {}},
      {"OrderPosition", capped("position"), {}},
      {"PaddedUnits", padded(), {}},
      {"NoiseAndImportanceDrops", noisy(), {}},
      {"AccumulationAndUnevenShares", accumulated(), {}},
      {"AccumulationWithNoiseAndImportanceDrops", accumulated(noisy()), {}},
      {"AccumulationWithOrderProbability", accumulated(capped("probability")), {}},
      {"GlobalScope", {losses("global")}, {}},
      {"GlobalScopeWithAccumulation", accumulated({losses("global")}), {}},
      {"SequenceScope", {losses("sequence")}, {}},
      {"ClippingByTheLargestValue", clipped_by_largest(), {}},
      {"ExpertsWithoutTokens", {kManyExperts}, {}},
      {"VitWithExperts", {vit(kBlockExperts)}, {}},
      {"AccumulationOfVitWithExperts", accumulated({vit(kBlockExperts + ", pool: mean")}), {}},
      {"ConvNextWithExperts", {convnext(kBlockExperts)}, {}},
      {"VitWithNexus", {vit(kBlockNexus)}, {}},
      {"AccumulationOfVitWithNexus", accumulated({vit(kBlockNexus + ", pool: mean")}), {}},
      {"ConvNextWithNexus", {convnext(kBlockNexus)}, {}},
      {"MixedImages",
       accumulated({vit(kBlockExperts + ", layer_scale: 0.3"), "task.loss=binary_cross_entropy",
                    "task.mix={mixup: 0.8, cutmix: 1}"}),
       {}}};
  std::ranges::move(sequence_cases(), std::back_inserter(cases));
  std::ranges::move(denoiser_cases(), std::back_inserter(cases));
  std::ranges::move(sparse_cases(), std::back_inserter(cases));
  std::ranges::move(permuted_cases(), std::back_inserter(cases));
  std::ranges::move(moco_cases(), std::back_inserter(cases));
  for (const auto& [name, optimizer] : equality_optimizers()) {
    cases.push_back({"SparseMlpWith_" + name, {optimizer, kClip}, {}});
    cases.push_back({"ParameterRulesWith_" + name, {with_rules(optimizer), kClip}, {}});
    if (name != "sgd") cases.push_back({"AccumulationWith_" + name, accumulated({optimizer}), {}});
    // A block's token-mixing output bias adds the same to all channels of a token. Every later
    // block sees it through a norm over channels only, and so does the head.
    cases.push_back({"MixerWith_" + name,
                     {"model={backbone: mixer, patch: 4, width: 8, depth: 2, token_hidden: 6, "
                      "channel_hidden: 12}",
                      optimizer, kClip},
                     {name == "sgd" ? std::vector<std::string>{}
                                    : std::vector<std::string>{"token_mlp.fc2.bias"}}});
    // A key's bias, between the query's and the value's, moves all logits of a query alike.
    const std::vector<std::string> key_bias =
        name == "sgd" ? std::vector<std::string>{} : std::vector<std::string>{"qkv.bias[2/3]"};
    cases.push_back({"VitWith_" + name, {vit(), optimizer, kClip}, key_bias});
    cases.push_back({"NexusWith_" + name, {vit(kBlockNexus), optimizer, kClip}, key_bias});
    cases.push_back(
        {"Gpt2With_" + name, joined(gpt2(kBlockExperts), {optimizer, kClip}), key_bias});
  }
  const std::vector<std::string> rest{equality_optimizers().back().second, kClip};
  cases.push_back(
      {"AllTogether", accumulated(joined(joined(capped("batch_priority"), noisy()), rest)), {}});
  return cases;
}

}  // namespace shoal::testing
