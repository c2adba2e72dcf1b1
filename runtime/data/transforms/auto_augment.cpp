#include <array>
#include <tuple>

#include "runtime/data/transforms/levelled_operation.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

using Op = PixelOperation;
/// Two steps, one after the other.
using SubPolicy = std::array<LevelledOperation, 2>;

constexpr SubPolicy pair_of(LevelledOperation first, LevelledOperation second) {
  return {first, second};
}

/// The paper's policy for ImageNet, appendix table 9: operation, probability, magnitude.
constexpr std::array kImageNetPolicy{pair_of({Op::kPosterise, 0.4, 8}, {Op::kRotate, 0.6, 9}),
                                     pair_of({Op::kSolarise, 0.6, 5}, {Op::kAutoContrast, 0.6, 5}),
                                     pair_of({Op::kEqualise, 0.8, 8}, {Op::kEqualise, 0.6, 3}),
                                     pair_of({Op::kPosterise, 0.6, 7}, {Op::kPosterise, 0.6, 6}),
                                     pair_of({Op::kEqualise, 0.4, 7}, {Op::kSolarise, 0.2, 4}),
                                     pair_of({Op::kEqualise, 0.4, 4}, {Op::kRotate, 0.8, 8}),
                                     pair_of({Op::kSolarise, 0.6, 3}, {Op::kEqualise, 0.6, 7}),
                                     pair_of({Op::kPosterise, 0.8, 5}, {Op::kEqualise, 1.0, 2}),
                                     pair_of({Op::kRotate, 0.2, 3}, {Op::kSolarise, 0.6, 8}),
                                     pair_of({Op::kEqualise, 0.6, 8}, {Op::kPosterise, 0.4, 6}),
                                     pair_of({Op::kRotate, 0.8, 8}, {Op::kColour, 0.4, 0}),
                                     pair_of({Op::kRotate, 0.4, 9}, {Op::kEqualise, 0.6, 2}),
                                     pair_of({Op::kEqualise, 0.0, 7}, {Op::kEqualise, 0.8, 8}),
                                     pair_of({Op::kInvert, 0.6, 4}, {Op::kEqualise, 1.0, 8}),
                                     pair_of({Op::kColour, 0.6, 4}, {Op::kContrast, 1.0, 8}),
                                     pair_of({Op::kRotate, 0.8, 8}, {Op::kColour, 1.0, 2}),
                                     pair_of({Op::kColour, 0.8, 8}, {Op::kSolarise, 0.8, 7}),
                                     pair_of({Op::kSharpness, 0.4, 7}, {Op::kInvert, 0.6, 8}),
                                     pair_of({Op::kShearX, 0.6, 5}, {Op::kEqualise, 1.0, 9}),
                                     pair_of({Op::kColour, 0.4, 0}, {Op::kEqualise, 0.6, 3}),
                                     pair_of({Op::kEqualise, 0.4, 7}, {Op::kSolarise, 0.2, 4}),
                                     pair_of({Op::kSolarise, 0.6, 5}, {Op::kAutoContrast, 0.6, 5}),
                                     pair_of({Op::kInvert, 0.6, 4}, {Op::kEqualise, 1.0, 8}),
                                     pair_of({Op::kColour, 0.6, 4}, {Op::kContrast, 1.0, 8}),
                                     pair_of({Op::kEqualise, 0.8, 8}, {Op::kEqualise, 0.6, 3})};

/// One of the 25 pairs of operations that a search found for ImageNet.
/// Source: Cubuk et al. 2018, "AutoAugment"; timm, data/auto_augment.py, policy `original`.
class AutoAugment final : public PixelTransform {
 public:
  struct Options {
    Interpolation interpolation = Interpolation::kBilinear;

    static constexpr auto fields() {
      return std::tuple{field("interpolation", &Options::interpolation,
                              "of rotations and shears: nearest, bilinear, bicubic, or random = "
                              "one of the last two each time")};
    }
  };

  explicit AutoAugment(const Options& options)
      : style_{LevelScale::kPaper, options.interpolation} {}
  void apply(EditedImage& image, const TransformDraws& draws) const override {
    const int64_t drawn = draws.integer(0, std::ssize(kImageNetPolicy));
    uint32_t first = 1;
    for (const LevelledOperation& step : kImageNetPolicy[static_cast<size_t>(drawn)]) {
      shoal::apply(step, style_, draws, first, image);
      first += kDrawsPerStep;
    }
  }

 private:
  PolicyStyle style_;
};

const Registration<PixelTransform, AutoAugment> registered_auto_augment{
    "auto_augment", "AutoAugment's policy for ImageNet"};

}  // namespace
}  // namespace shoal
