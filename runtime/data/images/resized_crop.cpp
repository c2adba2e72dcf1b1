#include "runtime/data/images/resized_crop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/options/registry.h"

namespace shoal {

const Registration<Crop, ResizedCrop<false>> registered_center_crop{
    "center", "the middle of the image, its shorter side resized first"};
const Registration<Crop, ResizedCrop<true>> registered_random_crop{
    "random", "a random part of the image, its shorter side resized first"};

template <bool kIsRandom>
ResizedCrop<kIsRandom>::ResizedCrop(const Options& options, const Context& context)
    : options_(options), image_size_(context.image_size) {
  if (options.resize && *options.resize < image_size_) {
    throw ConfigError(fmt::format("{}.resize: {} is below data.image_size, {}; raise it",
                                  context.key, *options.resize, image_size_));
  }
}

template <bool kIsRandom>
CropPlan ResizedCrop<kIsRandom>::plan(ImageShape image, const ScalarDraws& draws,
                                      uint64_t id) const {
  const int64_t shorter = std::min(image.height, image.width);
  const int64_t target = options_.resize.value_or(std::max(shorter, image_size_));
  const auto resized = [&](int64_t side) { return target * side / shorter; };
  CropPlan plan{.height = image.height,
                .width = image.width,
                .resized_height = resized(image.height),
                .resized_width = resized(image.width)};
  const auto corner = [&](uint32_t index, int64_t side) {
    if (kIsRandom) return draws.integer(id, index, side - image_size_ + 1);
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(side - image_size_) / 2.0));
  };
  plan.square_top = corner(0, plan.resized_height);
  plan.square_left = corner(1, plan.resized_width);
  return plan;
}

template class ResizedCrop<false>;
template class ResizedCrop<true>;

}  // namespace shoal
