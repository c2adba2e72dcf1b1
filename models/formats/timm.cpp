#include "models/formats/timm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/data/class_options.h"

namespace shoal::timm {
namespace {

/// Names of the classes, by timm or by Hugging Face's Transformers; empty without such names.
std::vector<std::string> read_class_names(const ForeignConfig& config) {
  std::vector<std::string> names = config.texts("label_names");
  if (names.empty()) names = config.section("pretrained_cfg").texts("label_names");
  if (names.empty()) names = config.texts("id2label");
  const bool are_numbers = !names.empty() && names.front() == "LABEL_0";
  return are_numbers ? std::vector<std::string>() : names;
}

}  // namespace

void set_classify(ModelRecipe& recipe, const ForeignWeights& weights, const ImageStem& stem) {
  recipe.task = Choice<Task>("classify");
  const int64_t classes = weights.shape_of("head.weight", 2)[0];
  nlohmann::ordered_json data{{"classes", classes}};
  const ForeignConfig pretrained = weights.config().section("pretrained_cfg");
  for (const char* key : {"mean", "std"}) {
    if (const auto numbers = pretrained.numbers(key)) data["normalise"][key] = *numbers;
  }
  const std::vector<std::string> names = read_class_names(weights.config());
  if (std::ssize(names) == classes && !unfit_name(names)) {
    data["class_names"] = names;
  } else if (!names.empty()) {
    recipe.assumed_keys.push_back(
        {"data.class_names",
         fmt::format("none, as config.json has no {} different names", classes)});
  }
  recipe.data = images_to_name(stem, std::move(data));
}

void check_model_args(const ForeignConfig& config, const std::vector<std::string>& known,
                      Mistakes& mistakes) {
  const ForeignConfig arguments = config.section("model_args");
  for (const std::string& key : arguments.keys()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    mistakes.add(
        fmt::format("{} ({}) is not supported", arguments.place(key), arguments.written(key)));
  }
}

void refuse_rates(const ForeignConfig& config, const std::vector<std::string>& keys,
                  Mistakes& mistakes) {
  const ForeignConfig arguments = config.section("model_args");
  for (const std::string& key : keys) {
    if (arguments.number(key).value_or(0.0) == 0.0) continue;
    mistakes.add(
        fmt::format("{} is {}, supported is 0", arguments.place(key), arguments.written(key)));
  }
}

void check_sizes(const ForeignWeights& weights, const ImageStem& stem,
                 const std::pair<std::string, int64_t>& depth) {
  const ForeignConfig arguments = weights.config().section("model_args");
  Mistakes mistakes;
  require_value(arguments, depth.first, std::to_string(depth.second), mistakes);
  require_value(arguments, "embed_dim", std::to_string(stem.width), mistakes);
  for (const auto& [key, size] :
       {std::pair{"patch_size", stem.patch}, std::pair{"img_size", stem.image_size}}) {
    if (arguments.written(key) == fmt::format("[{0},{0}]", size)) continue;
    require_value(arguments, key, std::to_string(size), mistakes);
  }
  mistakes.throw_if_any(fmt::format("'{}': config.json does not fit the weights:", weights.path()));
}

std::optional<Gelu> read_gelu(const ForeignConfig& config, Mistakes& mistakes) {
  const ForeignConfig arguments = config.section("model_args");
  const std::optional<std::string> name = arguments.text("act_layer");
  if (!name.has_value()) return std::nullopt;
  if (*name == "gelu_tanh") return Gelu::kTanh;
  if (*name != "gelu") {
    mistakes.add(fmt::format("{} is \"{}\", supported are gelu and gelu_tanh",
                             arguments.place("act_layer"), *name));
  }
  return Gelu::kErf;
}

void add_stem_and_head(std::vector<WeightName>& names, const std::string& stem,
                       const ImageStem& sizes) {
  names.push_back({"backbone.stem.weight",
                   stem + ".weight",
                   {sizes.width, sizes.channels, sizes.patch, sizes.patch}});
  names.push_back({"backbone.stem.bias", stem + ".bias"});
  add_layer(names, "head", "head");
}

ImageStem stem_of(const DataShape& data, int64_t patch, int64_t width) {
  const ImageShape image = data.image.value();
  return {image.channels, patch, width};
}

std::string write_config(const ModelToExport& model, const std::string& architecture,
                         const nlohmann::ordered_json& model_args, const std::string& stem,
                         int64_t width) {
  const ImageShape image = model.data.image.value();
  nlohmann::ordered_json pretrained{{"input_size", {image.channels, image.height, image.width}},
                                    {"num_classes", model.data.classes},
                                    {"fixed_input_size", true},
                                    {"first_conv", stem},
                                    {"classifier", "head"}};
  if (model.images) {
    pretrained["mean"] = model.images->stats.mean;
    pretrained["std"] = model.images->stats.std;
  }
  nlohmann::ordered_json config{
      {"architecture", architecture}, {"num_classes", model.data.classes},
      {"num_features", width},        {"global_pool", model_args.at("global_pool")},
      {"model_args", model_args},     {"pretrained_cfg", pretrained}};
  if (!model.class_names.empty()) config["label_names"] = model.class_names;
  return config.dump(2) + "\n";
}

double ratio_of(int64_t hidden, int64_t width) {
  double ratio = static_cast<double>(hidden) / static_cast<double>(width);
  while (static_cast<int64_t>(ratio * static_cast<double>(width)) < hidden) {
    ratio = std::nextafter(ratio, INFINITY);
  }
  return ratio;
}

}  // namespace shoal::timm
