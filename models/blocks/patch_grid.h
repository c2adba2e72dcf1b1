#pragma once

#include <cstdint>

#include "runtime/data/data_shape.h"

namespace shoal {

/// Patches of one image, S. Throws ConfigError unless `patch` divides both sides.
int64_t num_patches(const ImageShape& image, int64_t patch);

}  // namespace shoal
