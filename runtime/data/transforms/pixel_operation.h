#pragma once

#include <array>
#include <utility>

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

template <>
struct EnumNames<PixelOperation> {
  static constexpr std::array names{std::pair{PixelOperation::kAutoContrast, "auto_contrast"},
                                    std::pair{PixelOperation::kEqualise, "equalise"},
                                    std::pair{PixelOperation::kInvert, "invert"},
                                    std::pair{PixelOperation::kGrey, "grey"},
                                    std::pair{PixelOperation::kRotate, "rotate"},
                                    std::pair{PixelOperation::kPosterise, "posterise"},
                                    std::pair{PixelOperation::kSolarise, "solarise"},
                                    std::pair{PixelOperation::kSolariseAdd, "solarise_add"},
                                    std::pair{PixelOperation::kColour, "colour"},
                                    std::pair{PixelOperation::kContrast, "contrast"},
                                    std::pair{PixelOperation::kBrightness, "brightness"},
                                    std::pair{PixelOperation::kSharpness, "sharpness"},
                                    std::pair{PixelOperation::kHue, "hue"},
                                    std::pair{PixelOperation::kBlur, "blur"},
                                    std::pair{PixelOperation::kShearX, "shear_x"},
                                    std::pair{PixelOperation::kShearY, "shear_y"},
                                    std::pair{PixelOperation::kTranslateX, "translate_x"},
                                    std::pair{PixelOperation::kTranslateY, "translate_y"}};
};

/// Applies the operation in place. Images have red, green and blue. `interpolation`: for rotations,
/// shears and translations.
void apply(PixelOperation operation, double argument, Interpolation interpolation,
           EditedImage& image);

}  // namespace shoal
