#pragma once

#include <array>

#include "runtime/data/transforms/pixel_operation.h"

namespace shoal {

/// Names of the operations, for comparisons with other programs.
template <>
inline constexpr std::array kEnumWords<PixelOperation>{
    "auto_contrast", "equalise",     "invert",  "grey",     "rotate",      "posterise",
    "solarise",      "solarise_add", "colour",  "contrast", "brightness",  "sharpness",
    "hue",           "blur",         "shear_x", "shear_y",  "translate_x", "translate_y"};

}  // namespace shoal
