#pragma once

#include <array>
#include <utility>

#include "runtime/data/transforms/pixel_operation.h"

namespace shoal {

/// Names of the operations, for comparisons with other programs.
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

}  // namespace shoal
