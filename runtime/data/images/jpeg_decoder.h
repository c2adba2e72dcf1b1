#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/data/images/interleaved_image.h"

namespace shoal {

/// Decodes a JPEG file by libjpeg-turbo with its accurate integer transform, as Pillow does.
/// Baseline and progressive; grey, YCbCr, RGB, CMYK and YCCK with inverted inks, as Adobe writes
/// them. Limits: kMostPixels of the file's own size, 100 scans, 512 MiB for the decoder.
///
/// With `least_side` it is decoded at 1/2, 1/4 or 1/8 of its height and width, rounded up, the
/// least at which neither is below `least_side` pixels: from the low frequencies of each block
/// alone, which is what Pillow's `draft` does.
InterleavedImage decode_jpeg(std::span<const std::byte> file,
                             std::optional<int64_t> least_side = {});

}  // namespace shoal
