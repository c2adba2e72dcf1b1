#include "runtime/data/transforms/pixel_operation.h"

#include "runtime/data/transforms/image_changes.h"

namespace shoal {

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
    case PixelOperation::kRotate:
      return warp(image, rotation(argument, image.shape), interpolation);
    case PixelOperation::kShearX:
      return warp(image, {.b = argument}, interpolation);
    case PixelOperation::kShearY:
      return warp(image, {.d = argument}, interpolation);
    case PixelOperation::kTranslateX:
      return warp(image, {.c = argument * static_cast<double>(image.shape.width)}, interpolation);
    case PixelOperation::kTranslateY:
      return warp(image, {.f = argument * static_cast<double>(image.shape.height)}, interpolation);
  }
}

}  // namespace shoal
