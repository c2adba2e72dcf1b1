#pragma once

#include <cstddef>
#include <span>

#include "runtime/data/images/interleaved_image.h"

namespace shoal {

/// Decodes a PNG file by libpng to 8 bits a channel, values as they are stored: transparency is
/// dropped, not blended, and gamma and colour profiles are ignored, as Pillow ignores them. Limits:
/// kMostPixels, 65,535 for a side, 64 MiB for a chunk.
InterleavedImage decode_png(std::span<const std::byte> file);

}  // namespace shoal
