#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "models/backbones/sparse_mlp.h"
#include "models/formats/timm.h"

namespace shoal {
namespace {

constexpr const char* kMixerStem = "stem.proj";
/// Name for timm.models.mlp_mixer.MlpMixer with `model_args`, for sizes without a name in timm.
constexpr const char* kMixerClass = "MlpMixer";

struct NamedMixer {
  const char* name;
  int64_t patch, width, depth;
};
constexpr std::array kNamedMixers{
    NamedMixer{"mixer_s32_224", 32, 512, 8},   NamedMixer{"mixer_s16_224", 16, 512, 8},
    NamedMixer{"mixer_b32_224", 32, 768, 12},  NamedMixer{"mixer_b16_224", 16, 768, 12},
    NamedMixer{"mixer_l32_224", 32, 1024, 24}, NamedMixer{"mixer_l16_224", 16, 1024, 24}};

/// timm's architecture with the model's patch, width and depth; kMixerClass if there is none.
std::string name_of(const Mixer::Options& mixer) {
  for (const NamedMixer& named : kNamedMixers) {
    if (mixer.patch == named.patch && mixer.width == named.width && mixer.depth == named.depth) {
      return named.name;
    }
  }
  return kMixerClass;
}

/// Format of timm's MlpMixer. Weights from flax were trained with the tanh GELU, which timm
/// replaces by the exact one; model.gelu=tanh restores it.
class TimmMixer : public WeightFormat {
 public:
  explicit TimmMixer(const Options&) {}
  std::string_view program() const override { return "timm"; }
  std::string_view backbone() const override { return "mixer"; }
  std::string_view task() const override { return "classify"; }

  ModelRecipe recipe(const ForeignWeights& weights) const override {
    Mistakes mistakes;
    Mixer::Options mixer;
    ModelRecipe recipe;
    read_config(weights.config(), recipe, mistakes);
    mistakes.throw_if_any(fmt::format("'{}' is an unsupported Mixer:", weights.path()));
    const std::vector<int64_t>& tokens = weights.shape_of("blocks.0.mlp_tokens.fc1.weight", 2);
    const ImageStem stem = read_image_stem(weights, kMixerStem, tokens[1]);
    mixer.patch = stem.patch;
    mixer.width = stem.width;
    mixer.depth = weights.count_blocks("blocks.");
    mixer.token_hidden = tokens[0];
    mixer.channel_hidden = weights.shape_of("blocks.0.mlp_channels.fc1.weight", 2)[0];
    timm::check_sizes(weights, stem, {"num_blocks", mixer.depth});
    recipe.backbone = Choice<Backbone>("mixer", mixer);
    timm::set_classify(recipe, weights, stem);
    return recipe;
  }

  void check(const Choice<Backbone>& backbone, Mistakes& mistakes) const override {
    const auto& mixer = backbone.options<Mixer>();
    if (mixer.depth == 0) mistakes.add("model.depth: timm's Mixers have blocks");
  }

  void check_export(const ModelToExport& model, Mistakes& mistakes) const override {
    if (model.backbone.options<Mixer>().gelu == Gelu::kTanh) {
      mistakes.add("model.gelu: tanh: timm's MlpMixer takes no activation by name");
    }
  }

  std::vector<WeightName> names(const Choice<Backbone>& backbone, const Choice<Task>&,
                                const DataShape& data) const override {
    const auto& mixer = backbone.options<Mixer>();
    std::vector<WeightName> names;
    timm::add_stem_and_head(names, kMixerStem, timm::stem_of(data, mixer.patch, mixer.width));
    for (int64_t block = 0; block < mixer.depth; ++block) {
      const std::string theirs = fmt::format("blocks.{}.", block), ours = "backbone." + theirs;
      add_layer(names, ours + "token_norm", theirs + "norm1");
      add_layer(names, ours + "token_mlp.fc1", theirs + "mlp_tokens.fc1");
      add_layer(names, ours + "token_mlp.fc2", theirs + "mlp_tokens.fc2");
      add_layer(names, ours + "channel_norm", theirs + "norm2");
      add_layer(names, ours + "channel_mlp.fc1", theirs + "mlp_channels.fc1");
      add_layer(names, ours + "channel_mlp.fc2", theirs + "mlp_channels.fc2");
    }
    add_layer(names, "backbone.norm", "norm");
    return names;
  }

  std::string config(const ModelToExport& model) const override {
    const auto& mixer = model.backbone.options<Mixer>();
    const std::string name = name_of(mixer);
    // timm's named Mixers do not accept an argument twice.
    nlohmann::ordered_json arguments{{"img_size", model.data.image.value().height},
                                     {"mlp_ratio",
                                      {timm::ratio_of(mixer.token_hidden_width(), mixer.width),
                                       timm::ratio_of(mixer.channel_hidden_width(), mixer.width)}},
                                     {"global_pool", "avg"}};
    if (name == kMixerClass) {
      arguments["patch_size"] = mixer.patch;
      arguments["num_blocks"] = mixer.depth;
      arguments["embed_dim"] = mixer.width;
    }
    return timm::write_config(model, name, arguments, kMixerStem, mixer.width);
  }

 private:
  static void read_config(const ForeignConfig& config, ModelRecipe& recipe, Mistakes& mistakes) {
    timm::check_model_args(config,
                           {"img_size", "patch_size", "embed_dim", "num_blocks", "mlp_ratio",
                            "global_pool", "act_layer", "in_chans", "num_classes", "drop_rate",
                            "proj_drop_rate", "drop_path_rate", "nlhb"},
                           mistakes);
    require_value(config, "global_pool", "\"avg\"", mistakes);
    require_value(config.section("model_args"), "global_pool", "\"avg\"", mistakes);
    const ForeignConfig arguments = config.section("model_args");
    require_value(arguments, "act_layer", "\"gelu\"", mistakes);
    timm::refuse_rates(config, {"drop_rate", "proj_drop_rate", "drop_path_rate"}, mistakes);
    const std::string architecture = config.text("architecture").value_or("");
    if (architecture.empty()) {
      if (arguments.text("act_layer").has_value()) return;
      recipe.required_keys.push_back(
          {"model.gelu", "there is no config.json with an architecture"});
    } else if (architecture != kMixerClass && !architecture.starts_with("mixer_")) {
      mistakes.add(fmt::format("{} is \"{}\", supported are mixer_*", config.place("architecture"),
                               architecture));
    }
  }
};

const Registration<WeightFormat, TimmMixer> registered_timm_mixer{
    "timm_mixer", "timm's MlpMixer, into the backbone mixer"};

}  // namespace
}  // namespace shoal
