#pragma once

#include "runtime/data/pixel_transform.h"

namespace shoal {

/// Turns the hue of all pixels by `turn` of a circle, in [-0.5, 0.5], with the bytes of torchvision
/// on Pillow: to HSV in bytes, the hue's byte moved by 255 turn rounded towards 0, and back.
/// Rounding to bytes changes some pixels even where `turn` is 0.
void shift_hue(EditedImage& image, double turn);

}  // namespace shoal
