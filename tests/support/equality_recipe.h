#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

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
optimizer: {name: sgd, lr: 0.1}
schedule: {name: constant}
train: {duration: 5step, batch: 8, group: 2, precision: float64}
parallel: {uneven: true}
)";

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

/// An override: importance and load loss of this scope in the channel stage, with noise.
inline std::string losses(const std::string& scope) {
  return fmt::format(
      "model.sparse.channel_moe={{router: {{name: top_k, k: 2, noise: gaussian}}, losses: "
      "[{{name: importance, weight: 0.1, scope: {0}}}, {{name: load, weight: 0.1, scope: {0}}}], "
      "experts: {{count: 5, hidden: 6}}}}",
      scope);
}

}  // namespace shoal::testing
