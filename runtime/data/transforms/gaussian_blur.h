#pragma once

#include "runtime/data/pixel_transform.h"

namespace shoal {

/// Blurs in place, bit for bit as Pillow's GaussianBlur: three box filters along rows, then three
/// along columns, of fractional width. `sigma` is the standard deviation in pixels; 0 keeps the
/// image. Border pixels repeat outside the image. Any number of channels. Source: Gwosdek et al.
/// 2011, "Theoretical foundations of Gaussian convolution by extended box filtering".
void gaussian_blur(EditedImage& image, double sigma);

}  // namespace shoal
