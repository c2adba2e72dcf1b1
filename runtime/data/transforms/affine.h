#pragma once

#include "runtime/data/pixel_transform.h"

namespace shoal {

enum class Interpolation { kNearest, kBilinear, kBicubic };

/// Maps each position in the result to the position in the image that is read: (x, y) -> (a x + b y
/// + c, d x + e y + f). Pixels are squares of side 1 from (0, 0) on.
struct AffineMap {
  double a = 1.0, b = 0.0, c = 0.0, d = 0.0, e = 1.0, f = 0.0;
};

/// Rotation, anticlockwise about the image's centre.
AffineMap rotation(double degrees, ImageShape image);

inline constexpr uint8_t kWarpFill = 128;

/// Warps in place, bit for bit as Pillow's Image.transform; kWarpFill where the map leads outside.
/// Images have red, green and blue and less than 8192 pixels a side.
void warp(EditedImage& image, const AffineMap& map, Interpolation interpolation);

}  // namespace shoal
