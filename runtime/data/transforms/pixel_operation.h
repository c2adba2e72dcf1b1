#pragma once

#include "runtime/data/transforms/affine.h"

namespace shoal {

/// Changes of an image, of which policies such as RandAugment draw some. In brackets: the argument.
enum class PixelOperation {
  kAutoContrast,
  kEqualise,
  kInvert,
  kGrey,
  kRotate,       ///< [degrees anticlockwise]
  kPosterise,    ///< [number of bits kept]
  kSolarise,     ///< [smallest byte that is inverted]
  kSolariseAdd,  ///< [amount added to bytes below 128]
  kColour,       ///< [factor: 1 keeps the image], as for the next three
  kContrast,
  kBrightness,
  kSharpness,
  kHue,         ///< [turns of a circle, in [-0.5, 0.5]]
  kBlur,        ///< [standard deviation in pixels]
  kShearX,      ///< [columns per row]
  kShearY,      ///< [rows per column]
  kTranslateX,  ///< [share of the width]
  kTranslateY,  ///< [share of the height]
};

/// Applies the operation in place. Images have red, green and blue. `interpolation`: for rotations,
/// shears and translations; not kRandom.
void apply(PixelOperation operation, double argument, Interpolation interpolation,
           EditedImage& image);

}  // namespace shoal
