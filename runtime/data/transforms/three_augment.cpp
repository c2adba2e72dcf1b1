#include <tuple>

#include "runtime/data/transforms/image_changes.h"
#include "runtime/data/transforms/jitter.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

/// Grey, solarise or blur, equally likely; then changes of brightness, contrast and saturation.
/// Source: Touvron et al. 2022, "DeiT III".
class ThreeAugment final : public PixelTransform {
 public:
  struct Options {
    double jitter = 0.3;

    static constexpr auto fields() {
      return std::tuple{
          field("jitter", &Options::jitter,
                "maximum deviation of the brightness, contrast and saturation factors from 1",
                in_range(0, 10))};
    }
  };

  explicit ThreeAugment(const Options& options)
      : strengths_{options.jitter, options.jitter, options.jitter, 0.0} {}
  void apply(EditedImage& image, const TransformDraws& draws) const override {
    switch (draws.integer(0, 3)) {
      case 0:
        make_grey(image);
        break;
      case 1:
        solarise(image, 128);
        break;
      default:
        gaussian_blur(image, draws.between(1, 0.1, 2.0));
    }
    jitter_colours(strengths_, draws, 2, image);
  }

 private:
  JitterStrengths strengths_;
};

const Registration<PixelTransform, ThreeAugment> registered_three_augment{
    "three_augment", "DeiT III: grey, solarise or blur, then colour jitter"};

}  // namespace
}  // namespace shoal
