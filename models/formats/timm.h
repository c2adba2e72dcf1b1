#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/blocks/mlp.h"
#include "models/formats/image_stem.h"
#include "models/formats/weight_format.h"

/// Shared by formats of timm's image classifiers: stem, head, and the config.json of timm's models
/// on Hugging Face's hub (`architecture`, `num_classes`, `model_args`, `pretrained_cfg`).
namespace shoal::timm {

/// Sets the task and, as data to be replaced by data.source=…, generated shapes of the same size
/// and number of classes and, if config.json has them, its mean and standard deviation. Throws
/// Error (exit 12) for images of other than three channels.
void set_classify(ModelRecipe& recipe, const ForeignWeights& weights, const ImageStem& stem);

/// Refuses keys of `model_args` that are not `known`: they may change what a model computes.
void check_model_args(const ForeignConfig& config, const std::vector<std::string>& known,
                      Mistakes& mistakes);
/// Refuses rates in `model_args` other than zero: dropout that Shoal does not implement.
void refuse_rates(const ForeignConfig& config, const std::vector<std::string>& keys,
                  Mistakes& mistakes);
/// Throws Error (exit 12) unless the sizes in `model_args` match the weights; `depth`: key and
/// value of the number of blocks.
void check_sizes(const ForeignWeights& weights, const ImageStem& stem,
                 const std::pair<std::string, int64_t>& depth);
/// The activation of `model_args.act_layer`; nothing if it is missing.
std::optional<Gelu> read_gelu(const ForeignConfig& config, Mistakes& mistakes);

/// Adds stem and head; `stem`: timm's name of the stem's convolution.
void add_stem_and_head(std::vector<WeightName>& names, const std::string& stem,
                       const ImageStem& sizes);
ImageStem stem_of(const DataShape& data, int64_t patch, int64_t width);

/// config.json of a model with this stem and width, for timm's `architecture` with these arguments.
std::string write_config(const ModelToExport& model, const std::string& architecture,
                         const nlohmann::ordered_json& model_args, const std::string& stem,
                         int64_t width);

/// The ratio r for which Python's int(r * width) is `hidden`.
double ratio_of(int64_t hidden, int64_t width);

}  // namespace shoal::timm
