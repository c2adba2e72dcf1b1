#pragma once

#include <cstddef>
#include <span>

#include "runtime/data/images/interleaved_image.h"

namespace shoal {

/// Decodes a PNG file by libpng to 8 bits a channel; transparency is dropped, not blended. Limit:
/// kMostPixels.
InterleavedImage decode_png(std::span<const std::byte> file);

}  // namespace shoal
