#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/blocks/mlp.h"
#include "models/formats/image_stem.h"
#include "models/formats/weight_format.h"

/// Shared code for timm's image classifiers: config.json of models on Hugging Face's hub
/// (`architecture`, `num_classes`, `model_args`, `pretrained_cfg`), stem and head.
namespace shoal::timm {

/// Sets the task to `classify` and the data to images_to_name. Image size and number of classes are
/// those of the weights; mean, deviation and names of the classes are read from config.json if it
/// has them. Throws Error (exit 12) if there is no head.weight.
void set_classify(ModelRecipe& recipe, const ForeignWeights& weights, const ImageStem& stem);

/// Adds a mistake for each key of `model_args` not in `known`, since it may change the model.
void check_model_args(const ForeignConfig& config, const std::vector<std::string>& known,
                      Mistakes& mistakes);
/// Adds a mistake for each rate in `model_args` that is not zero: Shoal lacks these dropouts.
void refuse_rates(const ForeignConfig& config, const std::vector<std::string>& keys,
                  Mistakes& mistakes);
/// Throws Error (exit 12) unless the sizes in `model_args` match the weights; `depth`: key and
/// value of the number of blocks.
void check_sizes(const ForeignWeights& weights, const ImageStem& stem,
                 const std::pair<std::string, int64_t>& depth);
/// The activation of `model_args.act_layer`; nullopt if it is missing.
std::optional<Gelu> read_gelu(const ForeignConfig& config, Mistakes& mistakes);

/// Adds the weights of stem and head; `stem`: timm's name of the stem, the patch embedding.
void add_stem_and_head(std::vector<WeightName>& names, const std::string& stem,
                       const ImageStem& sizes);
/// Returns the stem of a model to export, without image_size.
ImageStem stem_of(const DataShape& data, int64_t patch, int64_t width);

/// Returns config.json for timm's `architecture` with these model_args. `stem`: timm's name of the
/// stem; `width`: number of its output channels.
std::string write_config(const ModelToExport& model, const std::string& architecture,
                         const nlohmann::ordered_json& model_args, const std::string& stem,
                         int64_t width);

/// A ratio r with int(r * width) == hidden in Python's arithmetic, by which timm sizes an MLP.
double ratio_of(int64_t hidden, int64_t width);

}  // namespace shoal::timm
