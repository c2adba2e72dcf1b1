#pragma once

#include "runtime/data/pixel_transform.h"

namespace shoal {

/// Shifts the hue of all pixels by `turn` of a circle, in [-0.5, 0.5], bit for bit as torchvision
/// on Pillow. Converts to HSV in bytes, adds trunc(255 * turn) to the hue modulo 256, and converts
/// back. Rounding to bytes changes some pixels even if `turn` is 0. For red, green and blue.
void shift_hue(EditedImage& image, double turn);

}  // namespace shoal
