#include "runtime/data/transforms/levelled_operation.h"

#include <algorithm>

namespace shoal {
namespace {

Interpolation drawn_interpolation(Interpolation interpolation, bool is_cubic) {
  if (interpolation != Interpolation::kRandom) return interpolation;
  return is_cubic ? Interpolation::kBicubic : Interpolation::kBilinear;
}

double bits_at(double part, LevelScale scale) {
  const auto bits = static_cast<double>(static_cast<int64_t>(part * 4.0));
  if (scale == LevelScale::kPaper) return bits + 4.0;
  return scale == LevelScale::kIncreasing ? 4.0 - bits : bits;
}

double threshold_at(double part, LevelScale scale) {
  const auto threshold = static_cast<double>(static_cast<int64_t>(part * 256.0));
  return scale == LevelScale::kIncreasing ? 256.0 - threshold : threshold;
}

double factor_at(double part, LevelScale scale, double sign) {
  if (scale != LevelScale::kIncreasing) return part * 1.8 + 0.1;
  return std::max(0.1, 1.0 + sign * (part * 0.9));
}

}  // namespace

double argument_at(const LevelledOperation& step, LevelScale scale, bool is_negative) {
  const double part = step.level / 10.0, sign = is_negative ? -1.0 : 1.0;
  switch (step.operation) {
    case PixelOperation::kRotate:
      return sign * (part * 30.0);
    case PixelOperation::kShearX:
    case PixelOperation::kShearY:
      return sign * (part * 0.3);
    case PixelOperation::kTranslateX:
    case PixelOperation::kTranslateY:
      return sign * (part * 0.45);
    case PixelOperation::kPosterise:
      return bits_at(part, scale);
    case PixelOperation::kSolarise:
      return threshold_at(part, scale);
    case PixelOperation::kSolariseAdd:
      return static_cast<double>(std::min<int64_t>(128, static_cast<int64_t>(part * 110.0)));
    case PixelOperation::kColour:
    case PixelOperation::kContrast:
    case PixelOperation::kBrightness:
    case PixelOperation::kSharpness:
      return factor_at(part, scale, sign);
    default:
      return 0.0;  // takes none
  }
}

void apply(const LevelledOperation& step, const PolicyStyle& style, const TransformDraws& draws,
           uint32_t first, EditedImage& image) {
  if (!draws.chance(first, step.probability)) return;
  const bool is_negative = draws.chance(first + 1, 0.5), is_cubic = draws.chance(first + 2, 0.5);
  apply(step.operation, argument_at(step, style.scale, is_negative),
        drawn_interpolation(style.interpolation, is_cubic), image);
}

}  // namespace shoal
