#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "runtime/data/crop.h"
#include "runtime/data/pixel_transform.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

constexpr uint32_t kMostTries = 10;
constexpr uint32_t kDrawsPerTry = 4;

int64_t rounded(double length) { return static_cast<int64_t>(std::nearbyint(length)); }

/// The largest rectangle in the middle whose width over height lies in `ratio`.
CropPlan middle_rectangle(ImageShape image, const std::vector<double>& ratio) {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  CropPlan plan{.height = image.height, .width = image.width};
  if (width / height < ratio[0]) {
    plan.height = std::min(image.height, rounded(width / ratio[0]));
  } else if (width / height > ratio[1]) {
    plan.width = std::min(image.width, rounded(height * ratio[1]));
  }
  plan.height = std::max<int64_t>(plan.height, 1);
  plan.width = std::max<int64_t>(plan.width, 1);
  plan.top = (image.height - plan.height) / 2;
  plan.left = (image.width - plan.width) / 2;
  return plan;
}

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
          field("scale", &Options::scale, "range of the area, relative to the image's",
                in_range(above(0), 1)),
          field("ratio", &Options::ratio, "range of width over height", in_range(0.01, 100))};
    }
    /// Refuses values that are not a pair in ascending order.
    void validate(Problems& problems) const {
      require_pair("scale", scale, problems);
      require_pair("ratio", ratio, problems);
    }
  };

  RandomResizedCrop(const Options& options, const Context& context)
      : options_(options), image_size_(context.image_size) {}
  CropPlan plan(ImageShape image, const ScalarDraws& draws, uint64_t id) const override {
    const auto between = [&](uint32_t index, double least, double most) {
      return least + (most - least) * draws.uniform(id, index);
    };
    CropPlan plan = middle_rectangle(image, options_.ratio);
    for (uint32_t first = 0; first < kMostTries * kDrawsPerTry; first += kDrawsPerTry) {
      const double area = static_cast<double>(image.pixels()) *
                          between(first, options_.scale[0], options_.scale[1]);
      const double ratio =
          std::exp(between(first + 1, std::log(options_.ratio[0]), std::log(options_.ratio[1])));
      const int64_t width = rounded(std::sqrt(area * ratio));
      const int64_t height = rounded(std::sqrt(area / ratio));
      if (width < 1 || width > image.width || height < 1 || height > image.height) continue;
      plan = {.top = draws.integer(id, first + 2, image.height - height + 1),
              .left = draws.integer(id, first + 3, image.width - width + 1),
              .height = height,
              .width = width};
      break;
    }
    plan.resized_height = plan.resized_width = image_size_;
    return plan;
  }

 private:
  Options options_;
  int64_t image_size_;
};

const Registration<Crop, RandomResizedCrop> registered_random_resized_crop{
    "random_resized", "a random rectangle of the image, resized to the square"};

}  // namespace
}  // namespace shoal
