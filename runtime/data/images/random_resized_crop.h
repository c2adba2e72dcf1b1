#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "runtime/data/crop.h"
#include "runtime/options/config.h"

namespace shoal {

/// Crop `random_resized`: a random rectangle resized to the square, the augmentation of Szegedy et
/// al. 2015 (GoogLeNet) in torchvision's form. If ten draws of area, shape and place do not fit
/// into the image, takes the largest allowed rectangle in its centre.
class RandomResizedCrop : public Crop {
 public:
  struct Options {
    std::vector<double> scale{0.08, 1.0};
    std::vector<double> ratio{3.0 / 4.0, 4.0 / 3.0};

    static constexpr auto fields() {
      return std::tuple{
          field("scale", &Options::scale, "least and most share of the image's area",
                in_range(above(0), 1)),
          field("ratio", &Options::ratio, "least and most width over height", in_range(0.01, 100))};
    }
    /// Refuses values that are not a pair in ascending order.
    void validate(Problems& problems) const;
  };

  RandomResizedCrop(const Options& options, const Context& context)
      : options_(options), image_size_(context.image_size) {}
  CropPlan plan(ImageShape image, const ScalarDraws& draws, uint64_t id) const override;

 private:
  Options options_;
  int64_t image_size_;
};

}  // namespace shoal
