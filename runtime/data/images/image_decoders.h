#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shoal {

/// A decoded image: rows of pixels, with red, green and blue of each pixel side by side.
struct InterleavedImage {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixel_HWC;  ///< 3 bytes a pixel
  std::string problem;             ///< why decoding failed; "" if it succeeded
};

/// Limit on pixels, checked before decoding.
inline constexpr int64_t kMostPixels = 64'000'000;

/// Why an image of this size is refused; "" if it is accepted.
inline std::string size_problem(int64_t height, int64_t width) {
  if (height < 1 || width < 1) return "it has no pixels";
  if (height <= kMostPixels / width) return {};
  return fmt::format("{} x {} pixels are more than the {} million allowed", height, width,
                     kMostPixels / 1'000'000);
}

/// Decodes a JPEG file by libjpeg-turbo with its accurate integer transform, as Pillow does.
/// Baseline and progressive; grey, YCbCr, RGB, and Adobe's CMYK and YCCK with inverted inks.
/// Limits: kMostPixels of the file's own size, 100 scans, 512 MiB for the decoder.
///
/// `least_side` saves work on large images: decodes at 1/2, 1/4 or 1/8 of height and width, rounded
/// up, the smallest scale at which neither is below `least_side` pixels. Uses only the low
/// frequencies of each block, as Pillow's `draft` does.
InterleavedImage decode_jpeg(std::span<const std::byte> file,
                             std::optional<int64_t> least_side = {});

/// Decodes a PNG file by libpng to 8 bits a channel, with the stored values: transparency is
/// dropped, not blended, and gamma and colour profiles are ignored, as in Pillow. Limits:
/// kMostPixels, 65,535 for a side, 64 MiB for a chunk.
InterleavedImage decode_png(std::span<const std::byte> file);

}  // namespace shoal
