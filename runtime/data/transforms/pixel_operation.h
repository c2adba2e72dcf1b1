#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "runtime/data/transforms/affine.h"

namespace shoal {

/// A change of an image that chance does not decide; its argument is in brackets.
enum class PixelOperation {
  kAutoContrast,
  kEqualise,
  kInvert,
  kGrey,
  kRotate,       ///< [degrees anticlockwise]
  kPosterise,    ///< [bits that are kept]
  kSolarise,     ///< [least byte that is inverted]
  kSolariseAdd,  ///< [what is added to bytes below 128]
  kColour,       ///< [factor]; so are the next three
  kContrast,
  kBrightness,
  kSharpness,
  kHue,         ///< [turns of a circle, in [-0.5, 0.5]]
  kBlur,        ///< [deviation in pixels]
  kShearX,      ///< [columns a row]
  kShearY,      ///< [rows a column]
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

/// In place. Images have red, green and blue. `interpolation`: of rotations, shears and
/// translations.
void apply(PixelOperation operation, double argument, Interpolation interpolation,
           EditedImage& image);

}  // namespace shoal
