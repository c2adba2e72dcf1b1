#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "runtime/data/crop.h"
#include "runtime/options/config.h"

namespace shoal {

struct ResizedCropOptions {
  std::optional<int64_t> resize;

  static constexpr auto fields() {
    return std::tuple{field("resize", &ResizedCropOptions::resize,
                            "length of the shorter side after resizing; none = not resized, but "
                            "enlarged to data.image_size if it is below it",
                            unit("pixels"), unset_word("none"), in_range(1, 1 << 16))};
  }
};

/// The crops `center` (kIsRandom = false), usual in evaluation, and `random`. Both resize the image
/// until its shorter side has `resize` pixels, then cut a square of data.image_size from the centre
/// or a random place. Without `resize`, only an image with a side below data.image_size is resized.
template <bool kIsRandom>
class ResizedCrop : public Crop {
 public:
  using Options = ResizedCropOptions;

  /// Throws: ConfigError if `resize` is below the side of the square.
  ResizedCrop(const Options& options, const Context& context);
  CropPlan plan(ImageShape image, const ScalarDraws& draws, uint64_t id) const override;

 private:
  Options options_;
  int64_t image_size_;
};

}  // namespace shoal
