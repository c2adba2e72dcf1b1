#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "runtime/data/pixel_transform.h"
#include "runtime/options/registry.h"

namespace shoal {

/// What an erased rectangle becomes.
enum class EraseFill { kMean, kColour, kNoise };

template <>
inline constexpr std::array kEnumWords<EraseFill>{"mean", "colour", "noise"};

namespace {

/// Overwrites a rectangle of random area, shape and place. Unlike torchvision's and timm's, it acts
/// on bytes: random colours and noise are uniform bytes, not normally distributed values.
/// Source: Zhong et al. 2017, "Random erasing data augmentation".
class RandomErasing final : public PixelTransform {
 public:
  struct Options {
    std::vector<double> area{0.02, 0.33};
    std::vector<double> ratio{0.3, 3.3};
    EraseFill fill = EraseFill::kMean;

    static constexpr auto fields() {
      return std::tuple{
          field("area", &Options::area, "range of the area, relative to the image's",
                in_range(above(0), 1)),
          field("ratio", &Options::ratio, "range of height over width", in_range(0.01, 100)),
          field("fill", &Options::fill,
                "mean: the value that normalization maps to 0; colour: a random one; noise: random "
                "bytes")};
    }
    void validate(Problems& problems) const {
      require_pair("area", area, problems);
      require_pair("ratio", ratio, problems);
    }
  };

  RandomErasing(const Options& options, const Context& context) : options_(options) {
    for (const double mean : context.mean) {
      mean_.push_back(static_cast<uint8_t>(std::clamp(std::nearbyint(255.0 * mean), 0.0, 255.0)));
    }
  }
  bool needs_colours() const override { return false; }
  void apply(EditedImage& image, const TransformDraws& draws) const override;

 private:
  static constexpr uint32_t kMostTries = 10;
  static constexpr uint32_t kDrawsPerTry = 4;
  static constexpr uint32_t kFirstFillDraw = kMostTries * kDrawsPerTry;

  struct Rectangle {
    int64_t top, left, height, width;
  };
  void erase(const Rectangle& rectangle, const TransformDraws& draws, EditedImage& image) const;

  Options options_;
  std::vector<uint8_t> mean_;
};

void RandomErasing::apply(EditedImage& image, const TransformDraws& draws) const {
  const ImageShape shape = image.shape;
  for (uint32_t first = 0; first < kFirstFillDraw; first += kDrawsPerTry) {
    const double area = static_cast<double>(shape.pixels()) *
                        draws.between(first, options_.area[0], options_.area[1]);
    const double ratio = std::exp(
        draws.between(first + 1, std::log(options_.ratio[0]), std::log(options_.ratio[1])));
    const auto height = static_cast<int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    const auto width = static_cast<int64_t>(std::nearbyint(std::sqrt(area / ratio)));
    if (height >= shape.height || width >= shape.width) continue;
    erase({draws.integer(first + 2, shape.height - height + 1),
           draws.integer(first + 3, shape.width - width + 1), height, width},
          draws, image);
    return;
  }
}

void RandomErasing::erase(const Rectangle& rectangle, const TransformDraws& draws,
                          EditedImage& image) const {
  const auto count = static_cast<size_t>(rectangle.width);
  std::vector<uint8_t> fill = mean_;
  const bool is_noise = options_.fill == EraseFill::kNoise;
  if (options_.fill == EraseFill::kColour) draws.fill(kFirstFillDraw, fill);
  if (is_noise) {
    fill.resize(static_cast<size_t>(image.shape.channels * rectangle.height) * count);
    draws.fill(kFirstFillDraw, fill);
  }
  const uint8_t* noise = fill.data();
  for (int64_t channel = 0; channel < image.shape.channels; ++channel) {
    for (int64_t y = rectangle.top; y < rectangle.top + rectangle.height; ++y) {
      uint8_t* row = image.plane(channel) + y * image.shape.width + rectangle.left;
      if (is_noise) {
        std::copy_n(noise, count, row);
        noise += count;
      } else {
        std::fill_n(row, count, fill[static_cast<size_t>(channel)]);
      }
    }
  }
}

const Registration<PixelTransform, RandomErasing> registered_random_erasing{
    "random_erasing", "a random rectangle overwritten"};

}  // namespace
}  // namespace shoal
