#pragma once

#include <cstddef>
#include <span>

#include "runtime/data/images/interleaved_image.h"

namespace shoal {

/// Decodes a JPEG file by libjpeg-turbo with its accurate integer transform, as Pillow does.
/// Baseline and progressive; grey, YCbCr, RGB, CMYK and YCCK with inverted inks, as Adobe writes
/// them. Limits: kMostPixels, 100 scans, 512 MiB for the decoder.
InterleavedImage decode_jpeg(std::span<const std::byte> file);

}  // namespace shoal
