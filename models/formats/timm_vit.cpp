#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "models/backbones/vit.h"
#include "models/formats/timm.h"

// C width  S tokens
namespace shoal {
namespace {

constexpr const char* kVitStem = "patch_embed.proj";

/// Heads of timm's plain ViTs, whose names are vit_SIZE_patchP_IMAGE. Others, such as
/// vit_base_patch16_gap_224, may have other heads.
constexpr std::array kHeadsOfSize{
    std::pair{"tiny", 3},  std::pair{"small", 6},  std::pair{"base", 12},    std::pair{"large", 16},
    std::pair{"huge", 16}, std::pair{"giant", 16}, std::pair{"gigantic", 16}};

/// Number of heads; 0 for other architectures, whose layers may differ too.
int64_t heads_of(const std::string& architecture) {
  static const std::regex kPlain("vit_([a-z]+)_patch[0-9]+_[0-9]+");
  std::smatch parts;
  if (!std::regex_match(architecture, parts, kPlain)) return 0;
  for (const auto& [size, heads] : kHeadsOfSize) {
    if (parts[1] == size) return heads;
  }
  return 0;
}

/// Format of timm's VisionTransformer. It computes the same as Vit if it pools a class token, or
/// has none and pools the mean of the normed tokens (`fc_norm` false).
class TimmVit : public WeightFormat {
 public:
  explicit TimmVit(const Options&) {}
  std::string_view program() const override { return "timm"; }
  std::string_view backbone() const override { return "vit"; }
  std::string_view task() const override { return "classify"; }

  ModelRecipe recipe(const ForeignWeights& weights) const override {
    Mistakes mistakes;
    check_tensors(weights, mistakes);
    Vit::Options vit;
    const bool has_cls = weights.find("cls_token") != nullptr;
    vit.pool = has_cls ? Pooling::kCls : Pooling::kMean;
    ModelRecipe recipe;
    read_config(weights.config(), vit, recipe, mistakes);
    mistakes.throw_if_any(fmt::format("'{}' is an unsupported ViT:", weights.path()));
    const int64_t tokens = weights.shape_of("pos_embed", 3)[1];
    const ImageStem stem = read_image_stem(weights, kVitStem, tokens - (has_cls ? 1 : 0));
    vit.patch = stem.patch;
    vit.width = stem.width;
    vit.depth = weights.count_blocks("blocks.");
    if (vit.depth > 0) vit.hidden = weights.shape_of("blocks.0.mlp.fc1.weight", 2)[0];
    timm::check_sizes(weights, stem, {"depth", vit.depth});
    recipe.backbone = Choice<Backbone>("vit", vit);
    timm::set_classify(recipe, weights, stem);
    return recipe;
  }

  void check(const Choice<Backbone>& backbone, Mistakes& mistakes) const override {
    const auto& vit = backbone.options<Vit>();
    if (vit.feed_forward.moe) mistakes.add("model.moe: timm has no layout for experts");
    if (vit.layer_scale) mistakes.add("model.layer_scale: scales cannot be exported to timm");
    if (vit.positions == TokenPositions::kSinCos) {
      mistakes.add("model.positions: timm's positions are learned, not sin_cos");
    }
    if (vit.feed_forward.nexus) mistakes.add("model.nexus: timm has no layout for Nexus layers");
  }

  std::vector<WeightName> names(const Choice<Backbone>& backbone, const Choice<Task>&,
                                const DataShape& data) const override {
    const auto& vit = backbone.options<Vit>();
    const ImageStem stem = timm::stem_of(data, vit.patch, vit.width);
    const bool has_cls = vit.pool == Pooling::kCls;
    const int64_t tokens = num_patches(data.image.value(), vit.patch) + (has_cls ? 1 : 0);
    std::vector<WeightName> names;
    timm::add_stem_and_head(names, kVitStem, stem);
    if (has_cls) names.push_back({"backbone.cls", "cls_token", {1, 1, vit.width}});
    names.push_back({"backbone.positions", "pos_embed", {1, tokens, vit.width}});
    for (int64_t block = 0; block < vit.depth; ++block) {
      const std::string theirs = fmt::format("blocks.{}.", block), ours = "backbone." + theirs;
      add_layer(names, ours + "attention_norm", theirs + "norm1");
      add_layer(names, ours + "attention.qkv", theirs + "attn.qkv");
      add_layer(names, ours + "attention.proj", theirs + "attn.proj");
      add_layer(names, ours + "mlp_norm", theirs + "norm2");
      add_layer(names, ours + "mlp.fc1", theirs + "mlp.fc1");
      add_layer(names, ours + "mlp.fc2", theirs + "mlp.fc2");
    }
    add_layer(names, "backbone.norm", "norm");
    return names;
  }

  std::string config(const ModelToExport& model) const override {
    const auto& vit = model.backbone.options<Vit>();
    const bool has_cls = vit.pool == Pooling::kCls;
    nlohmann::ordered_json arguments{{"img_size", model.data.image.value().height},
                                     {"patch_size", vit.patch},
                                     {"embed_dim", vit.width},
                                     {"depth", vit.depth},
                                     {"num_heads", vit.heads},
                                     {"mlp_ratio", timm::ratio_of(vit.hidden_width(), vit.width)},
                                     {"class_token", has_cls},
                                     {"global_pool", has_cls ? "token" : "avg"},
                                     {"fc_norm", false}};
    if (vit.gelu == Gelu::kTanh) arguments["act_layer"] = "gelu_tanh";
    if (vit.drop_path > 0) arguments["drop_path_rate"] = vit.drop_path;
    // The arguments replace all defaults of that name.
    return timm::write_config(model, "vit_base_patch16_224", arguments, kVitStem, vit.width);
  }

 private:
  /// Adds a mistake for tensors of each kind of layer that Shoal's ViT lacks.
  static void check_tensors(const ForeignWeights& weights, Mistakes& mistakes) {
    constexpr std::array kUnsupported{
        std::pair{"dist_token", "a distillation token"},
        std::pair{"reg_token", "register tokens"},
        std::pair{"blocks.0.ls1.gamma", "layer scale"},
        std::pair{"blocks.0.attn.q_norm.weight", "norms of queries and keys"},
        std::pair{"norm_pre.weight", "a norm before the blocks"},
        std::pair{"fc_norm.weight", "a norm after the pooling"},
        std::pair{"attn_pool.latent", "attention pooling"}};
    for (const auto& [name, what] : kUnsupported) {
      if (weights.find(name) == nullptr) continue;
      mistakes.add(fmt::format("it has {} (the tensor '{}'), which is not supported", what, name));
    }
  }

  static void read_config(const ForeignConfig& config, Vit::Options& vit, ModelRecipe& recipe,
                          Mistakes& mistakes) {
    timm::check_model_args(
        config,
        {"img_size", "patch_size", "embed_dim", "depth", "num_heads", "mlp_ratio", "class_token",
         "global_pool", "fc_norm", "act_layer", "in_chans", "num_classes", "qkv_bias", "drop_rate",
         "proj_drop_rate", "attn_drop_rate", "drop_path_rate", "weight_init", "fix_init"},
        mistakes);
    const ForeignConfig arguments = config.section("model_args");
    const std::string pool = vit.pool == Pooling::kCls ? "\"token\"" : "\"avg\"";
    require_value(config, "global_pool", pool, mistakes);
    require_value(arguments, "global_pool", pool, mistakes);
    timm::refuse_rates(config, {"drop_rate", "proj_drop_rate", "attn_drop_rate"}, mistakes);
    vit.drop_path = arguments.number("drop_path_rate").value_or(0.0);
    const std::optional<Gelu> gelu = timm::read_gelu(config, mistakes);
    vit.gelu = gelu.value_or(Gelu::kErf);
    const std::string architecture = config.text("architecture").value_or("");
    const int64_t named_heads = heads_of(architecture);
    const std::optional<int64_t> heads = arguments.integer("num_heads");
    vit.heads = heads.value_or(std::max(named_heads, int64_t{1}));
    const std::string unknown =
        architecture.empty()
            ? "there is no config.json with an architecture"
            : fmt::format("{} \"{}\" is not known", config.place("architecture"), architecture);
    if (named_heads > 0) return;
    if (!heads.has_value()) recipe.required_keys.push_back({"model.heads", unknown});
    if (!gelu.has_value()) recipe.required_keys.push_back({"model.gelu", unknown});
  }
};

const Registration<WeightFormat, TimmVit> registered_timm_vit{
    "timm_vit", "timm's VisionTransformer, into the backbone vit"};

}  // namespace
}  // namespace shoal
