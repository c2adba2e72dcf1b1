#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/data_shape.h"
#include "runtime/random/random_stream.h"

namespace shoal {

/// A crop of one image: a rectangle is resized, and a square is cut from the result.
struct CropPlan {
  int64_t top = 0, left = 0;                      ///< corner of the rectangle in the image, pixels
  int64_t height = 0, width = 0;                  ///< of the rectangle
  int64_t resized_height = 0, resized_width = 0;  ///< the rectangle is resized to this
  int64_t square_top = 0, square_left = 0;        ///< corner of the square in the resized rectangle
};

/// Turns images of any size into squares of one size: recipe keys data.train.crop, data.valid.crop.
class Crop {
 public:
  /// What Registry<Crop>::create passes to the constructor of a kind of crop.
  struct Context {
    int64_t image_size = 0;  ///< side of the square, pixels
    std::string key = {};    ///< recipe key, for errors: data.train.crop
  };
  static constexpr std::string_view kNameKey = "name";  ///< recipe key that selects a kind
  static constexpr std::string_view kNoun = "crop";     ///< word for messages

  virtual ~Crop() = default;
  /// Plans the crop for one view of one image. Random numbers are row `id` of `draws`; the loader
  /// keys `draws` by seed and view, and passes the sample's position in the data stream as `id`.
  virtual CropPlan plan(ImageShape image, const ScalarDraws& draws, uint64_t id) const = 0;
};

/// Applies a plan to an image; `size` is the side of the square. Resizes with the rounding of
/// Pillow's bilinear filter, which averages where it shrinks. Returns [channels, size, size].
std::vector<uint8_t> cropped(const std::vector<uint8_t>& pixel_CHW, ImageShape image,
                             const CropPlan& plan, int64_t size);

}  // namespace shoal
