#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shoal {

/// What a decoder makes of a file: pixels row by row, red, green and blue of each side by side.
struct InterleavedImage {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixel_HWC;  ///< 3 bytes a pixel
  std::string problem;             ///< why there is no image; "" if there is one
};

/// Larger images are refused before they are decoded.
inline constexpr int64_t kMostPixels = 64'000'000;

/// Why an image of this size is not decoded; "" if it is.
inline std::string size_problem(int64_t height, int64_t width) {
  if (height < 1 || width < 1) return "it has no pixels";
  if (height <= kMostPixels / width) return {};
  return fmt::format("{} x {} pixels are more than the {} million allowed", height, width,
                     kMostPixels / 1'000'000);
}

/// Decodes a JPEG file by libjpeg-turbo with its accurate integer transform, as Pillow does.
/// Baseline and progressive; grey, YCbCr, RGB, CMYK and YCCK with inverted inks, as Adobe writes
/// them. Limits: kMostPixels of the file's own size, 100 scans, 512 MiB for the decoder.
///
/// With `least_side` it is decoded at 1/2, 1/4 or 1/8 of its height and width, rounded up, the
/// least at which neither is below `least_side` pixels: from the low frequencies of each block
/// alone, which is what Pillow's `draft` does.
InterleavedImage decode_jpeg(std::span<const std::byte> file,
                             std::optional<int64_t> least_side = {});

/// Decodes a PNG file by libpng to 8 bits a channel, values as they are stored: transparency is
/// dropped, not blended, and gamma and colour profiles are ignored, as Pillow ignores them. Limits:
/// kMostPixels, 65,535 for a side, 64 MiB for a chunk.
InterleavedImage decode_png(std::span<const std::byte> file);

}  // namespace shoal
