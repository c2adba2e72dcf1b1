#include "runtime/data/images/random_resized_crop.h"

#include <algorithm>
#include <cmath>

#include "runtime/data/pixel_transform.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

constexpr uint32_t kMostTries = 10;
constexpr uint32_t kDrawsPerTry = 4;

const Registration<Crop, RandomResizedCrop> registered_random_resized_crop{
    "random_resized", "a random rectangle of the image, resized to the square"};

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

}  // namespace

void RandomResizedCrop::Options::validate(Problems& problems) const {
  require_pair("scale", scale, problems);
  require_pair("ratio", ratio, problems);
}

CropPlan RandomResizedCrop::plan(ImageShape image, const ScalarDraws& draws, uint64_t id) const {
  const auto between = [&](uint32_t index, double least, double most) {
    return least + (most - least) * draws.uniform(id, index);
  };
  CropPlan plan = middle_rectangle(image, options_.ratio);
  for (uint32_t first = 0; first < kMostTries * kDrawsPerTry; first += kDrawsPerTry) {
    const double area =
        static_cast<double>(image.pixels()) * between(first, options_.scale[0], options_.scale[1]);
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

}  // namespace shoal
