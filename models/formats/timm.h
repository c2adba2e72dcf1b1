#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/blocks/mlp.h"
#include "models/formats/image_stem.h"
#include "models/formats/weight_format.h"

/// What timm's image classifiers have in common: the config.json of its models on Hugging Face's
/// hub (`architecture`, `num_classes`, `model_args`, `pretrained_cfg`), stem and head.
namespace shoal::timm {

/// The task and, for data, drawn shapes of the size, with as many classes and, where config.json
/// has them, its mean and standard deviation: to be replaced by data.source=….
/// Throws Error (exit 12) for images of other than three channels.
void set_classify(ModelRecipe& recipe, const ForeignWeights& weights, const ImageStem& stem);

/// Refuses the keys of `model_args` that are not `known`: they may change what a model computes.
void check_model_args(const ForeignConfig& config, const std::vector<std::string>& known,
                      Mistakes& mistakes);
/// Refuses rates of `model_args` that are not zero: dropout that Shoal does not have.
void refuse_rates(const ForeignConfig& config, const std::vector<std::string>& keys,
                  Mistakes& mistakes);
/// Throws Error (exit 12) unless the sizes in `model_args` are those of the weights; `depth` is
/// what the number of blocks is called, and that number.
void check_sizes(const ForeignWeights& weights, const ImageStem& stem,
                 const std::pair<std::string, int64_t>& depth);
/// The activation of `model_args.act_layer`; nothing without one.
std::optional<Gelu> read_gelu(const ForeignConfig& config, Mistakes& mistakes);

/// Stem and head: `stem` is what timm calls the stem's convolution.
void add_stem_and_head(std::vector<WeightName>& names, const std::string& stem,
                       const ImageStem& sizes);
ImageStem stem_of(const DataShape& data, int64_t patch, int64_t width);

/// config.json of a model with this stem's name and width, built by `architecture` with these
/// arguments.
std::string write_config(const ModelToExport& model, const std::string& architecture,
                         const nlohmann::ordered_json& model_args, const std::string& stem,
                         int64_t width);

/// The ratio r for which int(r * width), as Python computes it, is `hidden`.
double ratio_of(int64_t hidden, int64_t width);

}  // namespace shoal::timm
