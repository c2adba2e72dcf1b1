#pragma once

#include <cstdint>

namespace shoal {

/// Size of one image, [channels, height, width] pixels.
struct ImageShape {
  int64_t channels = 3, height = 32, width = 32;

  int64_t pixels() const { return height * width; }
  int64_t bytes() const { return channels * height * width; }  ///< at one byte a value
  bool operator==(const ImageShape&) const = default;
};

}  // namespace shoal
