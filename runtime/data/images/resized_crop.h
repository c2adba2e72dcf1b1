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
                            "length that the shorter side is resized to first; none = as it is, "
                            "or data.image_size where it is shorter",
                            unit("pixels"), unset_word("none"), in_range(1, 1 << 16))};
  }
};

/// Crops `center`, as for evaluation, and `random`: resizes the image's shorter side, then cuts a
/// square from the centre or a random place.
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
