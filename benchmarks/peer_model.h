#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "launch/data/recipe_source.h"
#include "launch/step/session.h"
#include "models/backbones/sparse_mlp.h"
#include "models/backbones/vit.h"
#include "models/vision/patch_embed.h"
#include "moe/experts/expert_bank.h"
#include "moe/routers/importance_score.h"
#include "moe/routers/top_k.h"
#include "runtime/base/error.h"
#include "runtime/options/config_writer.h"

namespace shoal::bench {

inline void require_peer(bool has, const std::string& key, const std::string& what) {
  if (!has) throw ConfigError(key + ": the Python peer knows " + what + " only");
}

inline nlohmann::json describe_moe(const MoeOptions& moe) {
  const std::string& router = moe.router.name();
  const bool by_importance = router == "importance_score";
  require_peer(by_importance || router == "top_k", "router.name", "top_k and importance_score");
  require_peer(moe.experts.name() == "plain" && moe.shared.count == 0, "experts", "plain experts");
  require_peer(moe.capacity.mode == CapacityMode::kDropless, "capacity.mode", "dropless");
  const auto& losses = moe.losses.value();
  require_peer(losses.size() == 2 && losses[0].name() == "importance" && losses[1].name() == "load",
               "losses", "importance and load");
  const auto& experts = moe.experts.options<ExpertBank>();
  require_peer(experts.activation == Activation::kGelu && experts.bias, "experts",
               "GELU and biases");
  const ScoreOptions& top_k = by_importance ? moe.router.options<ImportanceScoreRouter>().top_k
                                            : moe.router.options<TopKRouter>();
  require_peer(top_k.noise == RouterNoise::kGaussian, "router.noise", "gaussian noise");
  require_peer(top_k.weights.normalise == Normalise::kNone, "router.weights.normalise", "none");
  return {{"experts", experts.count},
          {"hidden", experts.hidden.value()},
          {"k", top_k.k},
          {"drop", by_importance ? moe.router.options<ImportanceScoreRouter>().drop : 0.0},
          {"weight", 0.005}};
}

inline nlohmann::json describe(const Mixer::Options& model) {
  return {{"backbone", "sparse_mlp"},
          {"patch", model.patch},
          {"width", model.width},
          {"token_hidden", model.token_hidden_width()},
          {"channel_hidden", model.channel_hidden_width()},
          {"dense_blocks", model.depth},
          {"sparse_blocks", 0},
          {"sparse", nullptr}};
}

inline nlohmann::json describe(const SparseMlp::Options& model, const ImageShape& image) {
  const int64_t tokens = num_patches(image, model.patch);
  return {{"backbone", "sparse_mlp"},
          {"patch", model.patch},
          {"width", model.width},
          {"token_hidden", model.token_hidden_width()},
          {"channel_hidden", model.channel_hidden_width()},
          {"dense_blocks", model.dense_blocks},
          {"sparse_blocks", model.sparse_blocks},
          {"sparse",
           {{"tokens", model.sparse.tokens.value_or(2 * tokens)},
            {"width", model.sparse.width.value_or(model.width / 2)},
            {"outer_residual", model.sparse.outer_residual},
            {"token_moe", describe_moe(model.sparse.token_moe)},
            {"channel_moe", describe_moe(model.sparse.channel_moe.value())}}}};
}

inline nlohmann::json describe(const Vit::Options& model) {
  const FeedForwardOptions& feed_forward = model.feed_forward;
  require_peer(!feed_forward.nexus, "model.nexus", "MLPs and experts");
  require_peer(model.drop_path == 0, "model.drop_path", "a rate of 0");
  nlohmann::json moe = nlohmann::json::array();
  for (int64_t block = 0; block < model.depth; ++block) {
    const bool has = feed_forward.moe && feed_forward.is_sparse(block, model.depth);
    moe.push_back(has ? describe_moe(*feed_forward.moe) : nlohmann::json());
  }
  return {{"backbone", "vit"},
          {"patch", model.patch},
          {"width", model.width},
          {"heads", model.heads},
          {"hidden", model.hidden_width()},
          {"has_cls", model.pool == Pooling::kCls},
          {"moe", moe}};
}

inline nlohmann::json describe(const Choice<Backbone>& backbone, const ImageShape& image) {
  if (backbone.name() == "vit") return describe(backbone.options<Vit>());
  if (backbone.name() == "mixer") return describe(backbone.options<Mixer>());
  require_peer(backbone.name() == "sparse_mlp", "model.backbone", "mixer, sparse_mlp and vit");
  return describe(backbone.options<SparseMlp>(), image);
}

inline bool trains_moco(const Recipe& recipe) { return recipe.task.name() == "moco_v3"; }

/// Heads, loss and momentum of MoCo v3, whose options are known by their keys alone.
inline nlohmann::json describe_moco(const Recipe& recipe) {
  const config::Node root = config::to_node(recipe);
  nlohmann::json task;
  for (const std::string key : {"hidden", "out", "temperature", "momentum"}) {
    task[key] = nlohmann::json::parse(config::find_node(root, "task." + key)->text);
  }
  return task;
}

/// A recipe's model as its peer reads it, benchmarks/peers/train_step.py or moco_step.py. Throws
/// ConfigError about what that has nothing for.
inline nlohmann::json peer_model(const Recipe& recipe) {
  const DataShape data = make_source(recipe)->shape();
  const ImageShape image = data.image.value();
  const std::string& task = recipe.task.name();
  require_peer(trains_moco(recipe) || task == "classify", "task.name", "classify and moco_v3");
  require_peer(recipe.train.precision == Precision::kFloat32, "train.precision", "float32");
  require_peer(recipe.optimizer.name() == "adamw", "optimizer.name", "adamw");
  nlohmann::json model = describe(recipe.model.backbone, image);
  if (trains_moco(recipe)) model.update(describe_moco(recipe));
  model.update({{"batch", recipe.train.batch},
                {"group", recipe.train.group},
                {"clip_norm", recipe.train.clip_norm},
                {"image", image.height},
                {"classes", data.classes},
                {"lr", 1e-3},
                {"weight_decay", 0.05},
                {"label_smoothing", 0.1}});
  return model;
}

}  // namespace shoal::bench
