#include "runtime/data/transforms/jitter.h"

#include <algorithm>
#include <array>

#include "runtime/data/transforms/pixel_operation.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

/// One of the four, drawn from [least, most].
struct Jitter {
  PixelOperation operation;
  double least, most;
  uint32_t draw;
};

Jitter around_one(PixelOperation operation, double strength, uint32_t draw) {
  return {operation, std::max(0.0, 1.0 - strength), 1.0 + strength, draw};
}

/// `order` in [0, 24) names one of the orders.
void reorder(std::array<Jitter, 4>& jitters, int64_t order) {
  for (int64_t left = 4; left > 1; order /= left, --left) {
    std::swap(jitters[static_cast<size_t>(left - 1)], jitters[static_cast<size_t>(order % left)]);
  }
}

/// Brightness, contrast, saturation and hue, changed in random order: torchvision's ColorJitter.
class ColourJitter final : public PixelTransform {
 public:
  using Options = JitterStrengths;

  explicit ColourJitter(const Options& options) : strengths_(options) {}
  void apply(EditedImage& image, const TransformDraws& draws) const override {
    jitter_colours(strengths_, draws, 0, image);
  }

 private:
  JitterStrengths strengths_;
};

const Registration<PixelTransform, ColourJitter> registered_colour_jitter{
    "colour_jitter", "brightness, contrast, saturation and hue, in random order"};

}  // namespace

void jitter_colours(const JitterStrengths& strengths, const TransformDraws& draws, uint32_t first,
                    EditedImage& image) {
  std::array<Jitter, 4> jitters{
      around_one(PixelOperation::kBrightness, strengths.brightness, first + 1),
      around_one(PixelOperation::kContrast, strengths.contrast, first + 2),
      around_one(PixelOperation::kColour, strengths.saturation, first + 3),
      Jitter{PixelOperation::kHue, -strengths.hue, strengths.hue, first + 4}};
  reorder(jitters, draws.integer(first, 24));
  for (const Jitter& jitter : jitters) {
    if (jitter.least == jitter.most) continue;
    apply(jitter.operation, draws.between(jitter.draw, jitter.least, jitter.most),
          Interpolation::kNearest, image);
  }
}

}  // namespace shoal
