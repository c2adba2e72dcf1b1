#include "runtime/data/transforms/pixel_operation.h"

#include "runtime/data/transforms/image_changes.h"

namespace shoal {
namespace {

/// Rotations, shears and translations.
AffineMap map_of(PixelOperation operation, double argument, ImageShape image) {
  switch (operation) {
    case PixelOperation::kRotate:
      return rotation(argument, image);
    case PixelOperation::kShearX:
      return {.b = argument};
    case PixelOperation::kShearY:
      return {.d = argument};
    case PixelOperation::kTranslateX:
      return {.c = argument * static_cast<double>(image.width)};
    default:
      return {.f = argument * static_cast<double>(image.height)};
  }
}

}  // namespace

void apply(PixelOperation operation, double argument, Interpolation interpolation,
           EditedImage& image) {
  const auto whole = static_cast<int64_t>(argument);
  switch (operation) {
    case PixelOperation::kAutoContrast:
      return auto_contrast(image);
    case PixelOperation::kEqualise:
      return equalise(image);
    case PixelOperation::kInvert:
      return invert(image);
    case PixelOperation::kGrey:
      return make_grey(image);
    case PixelOperation::kPosterise:
      return posterise(image, whole);
    case PixelOperation::kSolarise:
      return solarise(image, whole);
    case PixelOperation::kSolariseAdd:
      return solarise_add(image, whole);
    case PixelOperation::kColour:
      return change_saturation(image, argument);
    case PixelOperation::kContrast:
      return change_contrast(image, argument);
    case PixelOperation::kBrightness:
      return change_brightness(image, argument);
    case PixelOperation::kSharpness:
      return change_sharpness(image, argument);
    case PixelOperation::kHue:
      return shift_hue(image, argument);
    case PixelOperation::kBlur:
      return gaussian_blur(image, argument);
    default:
      return warp(image, map_of(operation, argument, image.shape), interpolation);
  }
}

}  // namespace shoal
