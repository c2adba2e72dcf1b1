#pragma once

#include "runtime/data/pixel_transform.h"

namespace shoal {

/// Blurs in place with the bytes of Pillow's GaussianBlur: three box filters along rows, then three
/// along columns, of a width that need not be whole. `sigma` is the deviation in pixels; 0 keeps
/// the image. Outside lie the border's pixels. Any number of channels.
/// Source: Gwosdek et al. 2011, "Theoretical foundations of Gaussian convolution by extended box
/// filtering".
void gaussian_blur(EditedImage& image, double sigma);

}  // namespace shoal
