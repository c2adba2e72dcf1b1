#pragma once

#include <cstdint>
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
std::string size_problem(int64_t height, int64_t width);

}  // namespace shoal
