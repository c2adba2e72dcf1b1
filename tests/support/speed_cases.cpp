#include "tests/support/speed_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tests/support/equality_recipe.h"

namespace shoal::testing {
namespace {

Overrides exchange(const std::string& keys) {
  Overrides overrides;
  for (const char* stage : {"token_moe", "channel_moe"}) {
    overrides.push_back(fmt::format("model.sparse.{}.exchange={{{}}}", stage, keys));
  }
  return overrides;
}

Overrides router(const std::string& keys, bool takes_losses, const std::string& capacity) {
  Overrides overrides;
  for (const char* stage : {"token_moe", "channel_moe"}) {
    overrides.push_back(fmt::format("model.sparse.{}.router={{{}}}", stage, keys));
    if (!takes_losses) overrides.push_back(fmt::format("model.sparse.{}.losses=[]", stage));
    if (!capacity.empty()) {
      overrides.push_back(fmt::format("model.sparse.{}.capacity={{{}}}", stage, capacity));
    }
  }
  return overrides;
}

void add_cases_of_models(std::vector<SpeedCase>& cases) {
  cases.push_back({"RecomputeDenseGpt2", gpt2(), {"train.recompute=true"}});
  cases.push_back({"RecomputeGpt2", gpt2(kBlockExperts), {"train.recompute=true"}});
  cases.push_back({"ChunksOfGpt2", gpt2(kBlockExperts), {"model.moe.exchange={chunks: 2}"}});
  cases.push_back({"HierarchicalGpt2",
                   gpt2(kBlockExperts),
                   {"model.moe.exchange={hierarchical: true}", "parallel.ranks_per_node=2"}});
  cases.push_back(
      {"HierarchicalInChunksOfGpt2",
       gpt2(kBlockExperts),
       {"model.moe.exchange={hierarchical: true, chunks: 2}", "parallel.ranks_per_node=2"}});
  cases.push_back(
      {"RecomputeSoftlySparseVit",
       {vit(kBlockExperts),
        sparse_by_choice("diagonal", "permutation: {name: learned, lr: 0.05, until: 80%}")},
       {"train.recompute=true"}});
  cases.push_back({"RecomputeHspmn",
                   with_hspmn(answers(), "rate: 0.4", kBlockExperts),
                   {"train.recompute=true"}});
  cases.push_back({"ChunksOfHspmn",
                   with_hspmn(text_data(), "rate: 0.4", kBlockExperts),
                   {"model.moe.exchange={chunks: 2}"}});
  cases.push_back({"RecomputeDenoiser",
                   denoiser("mixing: hard, losses: [{name: switch, weight: 0.1}]"),
                   {"train.recompute=true"}});
  for (const auto& [name, optimizer] : equality_optimizers()) {
    // A key's bias moves all logits of a query alike: its gradient is zero but for rounding.
    cases.push_back({"ShardedOptimizerOfDenoiser_" + name,
                     joined(denoiser("mixing: hard"), {optimizer, kClip}),
                     {"parallel.shard_optimizer=true"},
                     name == "sgd" ? Overrides{} : Overrides{"key.bias"}});
    cases.push_back(
        {"ShardedOptimizerOfHspmn_" + name,
         joined(with_hspmn(text_data(), "rate: 0.4", kBlockExperts), {optimizer, kClip}),
         {"parallel.shard_optimizer=true"}});
    cases.push_back({"ShardedOptimizerOfDenseGpt2_" + name,
                     joined(gpt2("bias: false"), {optimizer, kClip}),
                     {"parallel.shard_optimizer=true"}});
    cases.push_back({"ShardedOptimizerOfGpt2_" + name,
                     joined(gpt2("bias: false, " + kBlockExperts), {optimizer, kClip}),
                     {"parallel.shard_optimizer=true", "train.recompute=true"}});
  }
}

/// The override of LAMB with more keys.
std::string lamb_with(const std::string& more) {
  const std::string lamb = equality_optimizers().back().second;
  return lamb.substr(0, lamb.size() - 1) + ", " + more + "}";
}

void add_sparse_kernels(std::vector<SpeedCase>& cases) {
  for (const auto& [name, pattern] :
       {std::pair{"Rows", "unstructured"}, std::pair{"Diagonals", "diagonal"},
        std::pair{"Blocks", "block, size: 2"}}) {
    cases.push_back({std::string("SparseKernelsOf") + name,
                     {sparse_by_kernels(pattern, "rigl"), "sparsity.execution=masked_dense"},
                     {"sparsity.execution=sparse"}});
  }
}

}  // namespace

std::vector<SpeedCase> speed_cases() {
  const std::string two_nodes = "parallel.ranks_per_node=2";
  std::vector<SpeedCase> cases{
      {"Hierarchical", {}, joined(exchange("hierarchical: true"), {two_nodes})},
      {"HierarchicalInChunks", capped("probability"),
       joined(exchange("hierarchical: true, chunks: 3"), {two_nodes})},
      {"NodesOfOneRank", padded(),
       joined(exchange("hierarchical: true"), {"parallel.ranks_per_node=1"})},
      {"Recompute", noisy(), {"train.recompute=true"}},
      {"RecomputeInChunks", noisy(), joined(exchange("chunks: 2"), {"train.recompute=true"})},
      {"RecomputeVit", {vit(kBlockExperts)}, {"train.recompute=true"}},
      {"RecomputeConvNext", {convnext(kBlockNexus)}, {"train.recompute=true"}},
      {"GradientsAfterTheBackwardPass", accumulated(), {"parallel.overlap_gradients=false"}},
      {"SharedExpertsWhileRowsTravel",
       {"model.sparse.channel_moe.shared={count: 1, hidden: 5}"},
       exchange("chunks: 2")},
  };
  for (const int64_t chunks : {2, 3, 4}) {
    cases.push_back({fmt::format("Chunks{}", chunks), capped("slot_major"),
                     exchange(fmt::format("chunks: {}", chunks))});
  }
  const std::string sharded = "parallel.shard_optimizer=true";
  for (const auto& [name, optimizer] : equality_optimizers()) {
    cases.push_back({"ShardedOptimizer_" + name, {optimizer, kClip}, {sharded}});
    cases.push_back({"ShardedOptimizerWithRules_" + name,
                     {with_rules(optimizer), kClip},
                     {sharded, "train.recompute=true"}});
  }
  const std::string lamb = equality_optimizers().back().second;
  cases.push_back({"ChunksWithRules", {with_rules(lamb)}, exchange("chunks: 2")});
  cases.push_back(
      {"ShardedOptimizerClippedByTheLargest", joined(clipped_by_largest(), {lamb}), {sharded}});
  cases.push_back({"ShardedOptimizerWithTrustForAll",
                   {lamb_with("always_adapt: true, trust_clip: true")},
                   {sharded}});
  cases.push_back({"ShardedOptimizerWithoutDecayOfExperts",
                   {lamb_with("no_decay: ['experts.*', channel_mlp]")},
                   {sharded}});
  const Overrides all = joined(exchange("hierarchical: true, chunks: 2"),
                               {two_nodes, "train.recompute=true", sharded});
  const auto family = [&](const std::string& name, const std::string& keys, bool takes_losses,
                          const std::string& capacity = "mode: capped, factor: 0.8, min: 1") {
    cases.push_back({"AllWith_" + name, joined(router(keys, takes_losses, capacity), {lamb}), all});
  };
  family("top_k", "name: top_k, k: 2, noise: gaussian", true);
  family("noisy_top_k", "name: noisy_top_k, k: 2", true);
  family("sigmoid", "name: sigmoid, k: 2, bias: {rate: 0.05}", true);
  family("sqrt_softplus", "name: sqrt_softplus, k: 2", true);
  family("importance_score", "name: importance_score, k: 2, drop: 0.3", true);
  family("sinkhorn", "name: sinkhorn, k: 2", false);
  family("expert_choice", "name: expert_choice, k: 2", false, "");
  family("hash", "name: hash, k: 2", false);
  family("forced", "name: forced, k: 2", false);
  add_sparse_kernels(cases);
  cases.push_back({"AllWith_nexus", {vit(kBlockNexus)}, {"train.recompute=true", sharded}});
  add_cases_of_models(cases);
  return cases;
}

std::vector<SpeedCase> speed_selection() {
  constexpr std::array<std::string_view, 7> kNames{
      "HierarchicalInChunks",         "Chunks2",       "RecomputeVit",
      "SharedExpertsWhileRowsTravel", "AllWith_top_k", "AllWith_expert_choice",
      "HierarchicalInChunksOfGpt2"};
  std::vector<SpeedCase> cases = speed_cases();
  std::erase_if(cases, [&](const SpeedCase& test) {
    return std::find(kNames.begin(), kNames.end(), test.name) == kNames.end();
  });
  return cases;
}

}  // namespace shoal::testing
