#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/backbones/adaptive_attention.h"
#include "models/formats/image_stem.h"
#include "models/formats/weight_format.h"
#include "models/tasks/denoise_options.h"
#include "moe/routers/mlp.h"
#include "runtime/base/error.h"
#include "runtime/base/size_limits.h"
#include "runtime/base/text.h"

// D width  N tokens  P patch
namespace shoal {
namespace {

constexpr const char* kPatchEmbed = "patch_embed";
constexpr const char* kExperts = "blocks.0.attn.experts.";
/// The published model class, of whose arguments config.json names some; num_experts and k_budgets
/// belong to its attention layers.
constexpr const char* kSmallVit = "SmallViT";
constexpr int64_t kPublishedImageSize = 32;

/// Format of the public adaptive sparse-attention denoiser: its SmallViT, whose experts attend to
/// the k keys with the highest logits and are mixed softly.
class AdaptiveAttentionFormat : public WeightFormat {
 public:
  explicit AdaptiveAttentionFormat(const Options&) {}
  std::string_view program() const override { return "adaptive_attention"; }
  std::string_view backbone() const override { return "adaptive_attention"; }
  std::string_view task() const override { return "denoise"; }

  ModelRecipe recipe(const ForeignWeights& weights) const override {
    require_tensors(weights);
    AdaptiveAttention::Options model;
    const int64_t tokens = weights.shape_of("pos_embed", 3)[1];
    const ImageStem stem = read_image_stem(weights, kPatchEmbed, tokens);
    model.patch = stem.patch;
    model.width = stem.width;
    model.depth = weights.count_blocks("blocks.");
    model.hidden = weights.shape_of("blocks.0.ffn.0.weight", 2)[0];
    model.attention->experts.resize(static_cast<size_t>(weights.count_blocks(kExperts)));
    check_config(weights, model, stem.image_size);
    ModelRecipe recipe;
    set_heads_and_keys(weights.config(), model, stem.image_size, recipe);
    recipe.backbone = Choice<Backbone>("adaptive_attention", model);
    recipe.task = Choice<Task>("denoise");
    recipe.data = images_to_name(stem, {{"normalise", {{"mean", {0, 0, 0}}, {"std", {1, 1, 1}}}}});
    return recipe;
  }

  void check(const Choice<Backbone>& backbone, Mistakes& mistakes) const override {
    const auto& model = backbone.options<AdaptiveAttention>();
    if (model.depth == 0) mistakes.add("model.depth: 0: the published model has blocks");
    if (model.final_norm) {
      mistakes.add("model.final_norm: the published model has no norm behind its blocks");
    }
    if (!model.attention) {
      mistakes.add("model.attention: null: the published model's blocks have attention experts");
      return;
    }
    if (model.attention->mixing == Mixing::kHardSharedKv) {
      mistakes.add(
          "model.attention.mixing: hard_shared_kv: each expert of the published model has keys and "
          "values of its own");
    }
    check_router(model.attention->router, mistakes);
  }

  void check_export(const ModelToExport& model, Mistakes& mistakes) const override {
    const auto& options = model.backbone.options<AdaptiveAttention>();
    if (options.attention->mixing != Mixing::kSoft) {
      mistakes.add(
          "model.attention.mixing: hard: the published program mixes all experts by the router's "
          "scores, so it would restore other images with these weights");
    }
    for (size_t e = 0; e < options.attention->experts.size(); ++e) {
      if (options.attention->experts[e].candidates.from == CandidateKind::kAll) continue;
      mistakes.add(
          fmt::format("model.attention.experts[{}].candidates: experts of the published "
                      "program choose among all keys",
                      e));
    }
    const ImageShape image = model.data.image.value();
    if (image.height != image.width) {
      mistakes.add(
          fmt::format("data: images of {} x {} pixels, those of the published program are "
                      "square",
                      image.height, image.width));
    }
    const int64_t hidden = hidden_width(options), router = router_width(options);
    if (hidden != 2 * options.width) {
      mistakes.add(fmt::format("model.hidden: {}, the published program builds {}, twice the width",
                               hidden, 2 * options.width));
    }
    if (router != options.width / 2) {
      mistakes.add(
          fmt::format("model.attention.router.hidden: {}, the published program builds {}, "
                      "half the width",
                      router, options.width / 2));
    }
    if (denoise_options(model.task).residual) {
      mistakes.add("task.residual: the published program restores the image, not the noise");
    }
  }

  std::vector<WeightName> names(const Choice<Backbone>& backbone, const Choice<Task>&,
                                const DataShape& data) const override {
    const auto& model = backbone.options<AdaptiveAttention>();
    const ImageShape image = data.image.value();
    const int64_t D = model.width, P = model.patch, N = num_patches(image, P);
    std::vector<WeightName> names{
        {"backbone.stem.weight", "patch_embed.weight", {D, image.channels, P, P}},
        {"backbone.stem.bias", "patch_embed.bias"},
        {"backbone.positions", "pos_embed", {1, N, D}},
        {"head.weight", "patch_unembed.weight", {D, image.channels, P, P}},
        {"head.bias", "patch_unembed.bias"}};
    for (int64_t block = 0; block < model.depth; ++block) {
      const std::string theirs = fmt::format("blocks.{}.", block), ours = "backbone." + theirs;
      add_layer(names, ours + "attention_norm", theirs + "norm1");
      add_layer(names, ours + "attention.router.fc1", theirs + "attn.router.routing_net.0");
      add_layer(names, ours + "attention.router.fc2", theirs + "attn.router.routing_net.2");
      for (size_t e = 0; e < model.attention->experts.size(); ++e) {
        const std::string expert = fmt::format("experts.{}.", e);
        add_expert(names, ours + "attention." + expert, theirs + "attn." + expert);
      }
      add_layer(names, ours + "merge", theirs + "attn.merge_proj");
      add_layer(names, ours + "mlp_norm", theirs + "norm2");
      add_layer(names, ours + "mlp.fc1", theirs + "ffn.0");
      add_layer(names, ours + "mlp.fc2", theirs + "ffn.2");
    }
    return names;
  }

  std::string config(const ModelToExport& model) const override {
    const auto& options = model.backbone.options<AdaptiveAttention>();
    const ImageShape image = model.data.image.value();
    const PatchGrid grid{image.height / options.patch, image.width / options.patch};
    nlohmann::ordered_json budgets = nlohmann::ordered_json::array();
    for (const AttentionExpertOptions& expert : options.attention->experts) {
      budgets.push_back(expert.k.value_or(expert.keys_of(grid)));
    }
    nlohmann::ordered_json config{{"architecture", kSmallVit}};
    for (const auto& [key, size] : sizes_of(options, image.height)) config[key] = size;
    config["num_heads"] = options.heads;
    config["k_budgets"] = budgets;
    return config.dump(2) + "\n";
  }

 private:
  static int64_t hidden_width(const AdaptiveAttention::Options& model) {
    return model.hidden.value_or(2 * model.width);
  }
  static int64_t router_width(const AdaptiveAttention::Options& model) {
    return model.attention->router.options<MlpRouter>().hidden_width(model.width);
  }

  /// The keys of config.json that the weights determine.
  static std::array<std::pair<std::string, int64_t>, 5> sizes_of(
      const AdaptiveAttention::Options& model, int64_t image_size) {
    return {{{"image_size", image_size},
             {"patch_size", model.patch},
             {"embed_dim", model.width},
             {"depth", model.depth},
             {"num_experts", std::ssize(model.attention->experts)}}};
  }

  /// Shoal stores [in, out], since the experts of a layer are stacked.
  static void add_expert(std::vector<WeightName>& names, const std::string& ours,
                         const std::string& theirs) {
    for (const auto& [our_layer, their_layer] :
         {std::pair{"query", "W_q"}, std::pair{"key", "W_k"}, std::pair{"value", "W_v"},
          std::pair{"out", "W_out"}}) {
      const std::string our_name = ours + our_layer, their_name = theirs + their_layer;
      names.push_back({our_name + ".weight", their_name + ".weight", {}, /*is_transposed=*/true});
      names.push_back({our_name + ".bias", their_name + ".bias"});
    }
  }

  static void check_router(const Choice<Router>& router, Mistakes& mistakes) {
    if (router.name() != "mlp") {
      mistakes.add(fmt::format("model.attention.router.name: {}, the published model's is mlp",
                               router.name()));
      return;
    }
    const ScoreOptions& scores = router.options<MlpRouter>().scores;
    if (scores.noise == RouterNoise::kLearned) {
      mistakes.add("model.attention.router.noise: learned: the published router has no noise");
    }
    if (scores.bias.rate > 0) {
      mistakes.add("model.attention.router.bias.rate: the published router has no selection bias");
    }
  }

  /// Throws if a part of the architecture has none of its tensors.
  static void require_tensors(const ForeignWeights& weights) {
    Mistakes mistakes;
    for (const char* name :
         {"patch_embed.weight", "pos_embed", "blocks.0.attn.router.routing_net.0.weight",
          "blocks.0.attn.experts.0.W_q.weight", "blocks.0.attn.merge_proj.weight",
          "blocks.0.ffn.0.weight", "patch_unembed.weight"}) {
      if (weights.find(name) == nullptr) mistakes.add(fmt::format("'{}' is missing", name));
    }
    mistakes.throw_if_any(
        fmt::format("'{}' does not hold the weights of an adaptive sparse-attention denoiser:",
                    weights.path()),
        "--as names another format, where the weights are another model's");
  }

  /// Adds mistakes for another model's config.json and for options that change the result.
  static void check_config(const ForeignWeights& weights, const AdaptiveAttention::Options& model,
                           int64_t image_size) {
    const ForeignConfig& config = weights.config();
    const auto sizes = sizes_of(model, image_size);
    Mistakes mistakes;
    require_value(config, "architecture", fmt::format("\"{}\"", kSmallVit), mistakes);
    for (const auto& [key, size] : sizes) {
      require_value(config, key, std::to_string(size), mistakes);
    }
    for (const std::string& key : config.keys()) {
      const bool is_size =
          std::ranges::any_of(sizes, [&](const auto& item) { return item.first == key; });
      if (is_size || key == "architecture" || key == "num_heads" || key == "k_budgets") continue;
      mistakes.add(fmt::format("{} ({}) is not supported", config.place(key), config.written(key)));
    }
    mistakes.throw_if_any(fmt::format("'{}' is an unsupported denoiser:", weights.path()));
  }

  static bool is_published_size(const AdaptiveAttention::Options& model, int64_t image_size) {
    const AdaptiveAttention::Options published;
    return sizes_of(model, image_size) == sizes_of(published, kPublishedImageSize) &&
           model.hidden == hidden_width(published);
  }

  /// Sets heads and k from config.json, since weights do not show them.
  static void set_heads_and_keys(const ForeignConfig& config, AdaptiveAttention::Options& model,
                                 int64_t image_size, ModelRecipe& recipe) {
    const AdaptiveAttention::Options published;
    const bool is_published = is_published_size(model, image_size);
    const auto tell = [&](const char* key, const char* theirs, const std::string& value) {
      const std::string why = config.is_there() ? fmt::format("config.json lacks {}", theirs)
                                                : "there is no config.json";
      if (is_published) {
        recipe.assumed_keys.push_back(
            {key, fmt::format("{}, as in the published model of these sizes; {}", value, why)});
      } else {
        recipe.required_keys.push_back({key, why});
      }
    };
    if (const auto heads = config.integer("num_heads")) {
      model.heads = *heads;
    } else {
      model.heads = is_published ? published.heads : 1;
      tell("model.heads", "num_heads", std::to_string(published.heads));
    }
    if (const auto budgets = config.numbers("k_budgets")) {
      set_budgets(config, *budgets, model.attention->experts);
    } else {
      if (is_published) model.attention->experts = published.attention->experts;
      std::vector<std::string> keys;
      for (const auto& expert : published.attention->experts) {
        keys.push_back(std::to_string(expert.k.value()));
      }
      tell("model.attention.experts", "k_budgets", "k of " + join_words(keys));
    }
  }

  static void set_budgets(const ForeignConfig& config, const std::vector<double>& budgets,
                          std::vector<AttentionExpertOptions>& experts) {
    const bool are_good = std::ranges::all_of(
        budgets, [](double k) { return k >= 1 && k <= kMostWidth && k == std::floor(k); });
    if (budgets.size() != experts.size() || !are_good) {
      throw Error(
          ExitCode::kMismatch,
          fmt::format("{} is {}, expected a whole number from 1 to {} for each of {} experts",
                      config.place("k_budgets"), config.written("k_budgets"), kMostWidth,
                      experts.size()));
    }
    for (size_t e = 0; e < experts.size(); ++e) experts[e].k = static_cast<int64_t>(budgets[e]);
  }
};

const Registration<WeightFormat, AdaptiveAttentionFormat> registered_adaptive_attention_format{
    "adaptive_attention",
    "the published adaptive sparse-attention denoiser, into the backbone adaptive_attention"};

}  // namespace
}  // namespace shoal
