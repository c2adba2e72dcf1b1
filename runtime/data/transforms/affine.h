#pragma once

#include <array>
#include <utility>

#include "runtime/data/pixel_transform.h"

namespace shoal {

/// Interpolation of a warp; policies draw bilinear or bicubic for kRandom, which warp() refuses.
enum class Interpolation { kNearest, kBilinear, kBicubic, kRandom };
template <>
struct EnumNames<Interpolation> {
  static constexpr std::array names{std::pair{Interpolation::kNearest, "nearest"},
                                    std::pair{Interpolation::kBilinear, "bilinear"},
                                    std::pair{Interpolation::kBicubic, "bicubic"},
                                    std::pair{Interpolation::kRandom, "random"}};
};

/// Inverse map of a warp: position (x, y) of the result is sampled from the image at position
/// (a x + b y + c, d x + e y + f). The top left pixel is the square from (0, 0) to (1, 1).
struct AffineMap {
  double a = 1.0, b = 0.0, c = 0.0, d = 0.0, e = 1.0, f = 0.0;
};

/// The map that rotates an image anticlockwise about its centre.
AffineMap rotation(double degrees, ImageShape image);

inline constexpr uint8_t kWarpFill = 128;  ///< byte of all channels outside the image

/// Warps in place, bit for bit as Pillow's Image.transform. Positions outside the image read as
/// kWarpFill. Images have red, green and blue and less than 8192 pixels a side. `interpolation` is
/// not kRandom (std::logic_error).
void warp(EditedImage& image, const AffineMap& map, Interpolation interpolation);

}  // namespace shoal
