#pragma once

#include <array>
#include <utility>

#include "runtime/data/pixel_transform.h"

namespace shoal {

enum class Interpolation { kNearest, kBilinear, kBicubic };

/// From a place in the result to the place in the image that is read there:
/// (x, y) -> (a x + b y + c, d x + e y + f). Pixels are squares of side 1 from (0, 0) on.
struct AffineMap {
  double a = 1.0, b = 0.0, c = 0.0, d = 0.0, e = 1.0, f = 0.0;
};

/// Anticlockwise about the image's middle.
AffineMap rotation(double degrees, ImageShape image);

inline constexpr uint8_t kWarpFill = 128;

/// In place, with the bytes of Pillow's Image.transform; kWarpFill where the map leads outside.
/// Images have red, green and blue and less than 8192 pixels a side.
void warp(EditedImage& image, const AffineMap& map, Interpolation interpolation);

}  // namespace shoal
