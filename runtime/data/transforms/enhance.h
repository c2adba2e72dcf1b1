#pragma once

#include "runtime/data/pixel_transform.h"

/// Blends of an image with a plain version of itself, in place, with the bytes of Pillow's
/// ImageEnhance: factor 1 keeps the image, 0 gives the plain version, more exaggerates.
/// Images have red, green and blue.
namespace shoal {

void change_brightness(EditedImage& image, double factor);  ///< from black
void change_contrast(EditedImage& image, double factor);    ///< from the mean of its grey values
void change_saturation(EditedImage& image, double factor);  ///< from its grey values
void change_sharpness(EditedImage& image, double factor);   ///< from a smooth version

/// Red, green and blue become the grey value, 0.299 red + 0.587 green + 0.114 blue.
void make_grey(EditedImage& image);

}  // namespace shoal
