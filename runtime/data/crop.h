#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/data_shape.h"
#include "runtime/random/random_stream.h"

namespace shoal {

/// A crop of an image: a rectangle, the size it is resized to, and a square of the result.
struct CropPlan {
  int64_t top = 0, left = 0;                      ///< corner of the rectangle in the image, pixels
  int64_t height = 0, width = 0;                  ///< of the rectangle
  int64_t resized_height = 0, resized_width = 0;  ///< the rectangle is resized to this
  int64_t square_top = 0, square_left = 0;        ///< corner of the square in the resized rectangle
};

/// Turns images of any size into squares of one size; registered under `crop`.
class Crop {
 public:
  struct Context {
    int64_t image_size = 0;  ///< side of the square, pixels
    std::string key = {};    ///< recipe key, for errors: data.train.crop
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "crop";

  virtual ~Crop() = default;
  /// Plans the crop for one view of one image, with the random numbers in row `id` of `draws`.
  virtual CropPlan plan(ImageShape image, const ScalarDraws& draws, uint64_t id) const = 0;
};

/// Applies a plan: the square of side `size`, resized with the rounding of Pillow's bilinear
/// filter, which averages where it shrinks. Returns [channels, size, size].
std::vector<uint8_t> cropped(const std::vector<uint8_t>& pixel_CHW, ImageShape image,
                             const CropPlan& plan, int64_t size);

}  // namespace shoal
