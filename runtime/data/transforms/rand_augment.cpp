#include <algorithm>
#include <array>
#include <tuple>

#include "runtime/data/transforms/levelled_operation.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

constexpr std::array kRandAugmentOperations{
    PixelOperation::kAutoContrast, PixelOperation::kEqualise,   PixelOperation::kInvert,
    PixelOperation::kRotate,       PixelOperation::kPosterise,  PixelOperation::kSolarise,
    PixelOperation::kSolariseAdd,  PixelOperation::kColour,     PixelOperation::kContrast,
    PixelOperation::kBrightness,   PixelOperation::kSharpness,  PixelOperation::kShearX,
    PixelOperation::kShearY,       PixelOperation::kTranslateX, PixelOperation::kTranslateY};

/// Some of fifteen operations, drawn one by one, all of one magnitude, in timm's form. Magnitudes
/// above 10 go beyond timm's extremes, as with its `mmax`.
/// Source: Cubuk et al. 2019, "RandAugment"; timm, data/auto_augment.py.
class RandAugment final : public PixelTransform {
 public:
  struct Options {
    int64_t num_ops = 2;
    double magnitude = 10.0;
    double magnitude_std = 0.0;
    double op_probability = 0.5;
    bool increasing = false;
    Interpolation interpolation = Interpolation::kBilinear;

    static constexpr auto fields() {
      return std::tuple{
          field("num_ops", &Options::num_ops, "operations drawn per image", in_range(0, 16)),
          field("magnitude", &Options::magnitude,
                "magnitude of the operations; 10 = the maximum of the paper", in_range(0, 30)),
          field("magnitude_std", &Options::magnitude_std,
                "standard deviation of the magnitude of each operation, which is normally "
                "distributed and clipped to [0, 10], or to [0, magnitude] if that is above 10",
                in_range(0, 10)),
          field("op_probability", &Options::op_probability,
                "probability of applying each selected operation", in_range(0, 1)),
          field("increasing", &Options::increasing,
                "solarise, posterise and the factors change more, not less, the higher the "
                "magnitude (timm's inc1)"),
          field("interpolation", &Options::interpolation,
                "of rotations, shears and translations: nearest, bilinear, bicubic, or random = "
                "one of the last two each time")};
    }
  };

  explicit RandAugment(const Options& options) : options_(options) {}
  void apply(EditedImage& image, const TransformDraws& draws) const override {
    const PolicyStyle style{options_.increasing ? LevelScale::kIncreasing : LevelScale::kPlain,
                            options_.interpolation};
    for (int64_t i = 0; i < options_.num_ops; ++i) {
      const uint32_t first = static_cast<uint32_t>(i) * kDrawsPerStep;
      const int64_t drawn = draws.integer(first, std::ssize(kRandAugmentOperations));
      shoal::apply({kRandAugmentOperations[static_cast<size_t>(drawn)], options_.op_probability,
                    drawn_magnitude(draws, first + 1)},
                   style, draws, first + 2, image);
    }
  }

 private:
  double drawn_magnitude(const TransformDraws& draws, uint32_t index) const {
    if (options_.magnitude_std == 0.0) return options_.magnitude;
    const double drawn = options_.magnitude + options_.magnitude_std * draws.normal(index);
    return std::clamp(drawn, 0.0, std::max(10.0, options_.magnitude));
  }

  Options options_;
};

const Registration<PixelTransform, RandAugment> registered_rand_augment{
    "rand_augment", "RandAugment: some random operations of one magnitude"};

}  // namespace
}  // namespace shoal
