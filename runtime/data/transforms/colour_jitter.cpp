#include <tuple>

#include "runtime/data/transforms/jitter.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

/// Brightness, contrast, saturation and hue, changed in random order: torchvision's ColorJitter.
class ColourJitter final : public PixelTransform {
 public:
  struct Options {
    double brightness = 0.0;
    double contrast = 0.0;
    double saturation = 0.0;
    double hue = 0.0;

    static constexpr auto fields() {
      return std::tuple{field("brightness", &Options::brightness,
                              "most that the factor differs from 1", in_range(0, 10)),
                        field("contrast", &Options::contrast, "as brightness", in_range(0, 10)),
                        field("saturation", &Options::saturation, "as brightness", in_range(0, 10)),
                        field("hue", &Options::hue, "most that hues turn, either way",
                              unit("circles"), in_range(0, 0.5))};
    }
  };

  explicit ColourJitter(const Options& options)
      : strengths_{options.brightness, options.contrast, options.saturation, options.hue} {}
  void apply(EditedImage& image, const TransformDraws& draws) const override {
    jitter_colours(strengths_, draws, 0, image);
  }

 private:
  JitterStrengths strengths_;
};

const Registration<PixelTransform, ColourJitter> registered_colour_jitter{
    "colour_jitter", "brightness, contrast, saturation and hue, in random order"};

}  // namespace
}  // namespace shoal
