#pragma once

#include <cstdint>
#include <string>

#include "models/formats/foreign_weights.h"

namespace shoal {

/// Image size and patch embedding of a model, as derived from its weights; images are square.
struct ImageStem {
  int64_t channels = 0, patch = 0, width = 0, image_size = 0;
};

/// Derives them from the convolution `name` [C, channels, p, p] and the number of patches. Throws
/// Error (exit 12).
ImageStem read_image_stem(const ForeignWeights& weights, const std::string& name,
                          int64_t num_patches);

}  // namespace shoal
