#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/formats/foreign_weights.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// Sizes of a model's patch embedding and its square images, for import and export.
struct ImageStem {
  int64_t channels = 0, patch = 0, width = 0, image_size = 0;
};

/// Derives the sizes from the convolution's weight `name`.weight [C, 3, p, p] and the number of
/// patches. Throws Error (exit 12) unless images and patches are square and have 3 channels.
ImageStem read_image_stem(const ForeignWeights& weights, const std::string& name,
                          int64_t num_patches);

/// A data source for imported weights, image_folder, whose data.path users replace. `keys`: further
/// keys of `data`.
Choice<DataSource> images_to_name(const ImageStem& stem, nlohmann::ordered_json keys);

}  // namespace shoal
