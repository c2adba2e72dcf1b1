#pragma once

#include "runtime/data/pixel_transform.h"

/// Blends of an image with a plain version of itself, in place, bit for bit as Pillow's
/// ImageEnhance: factor 1 keeps the image, 0 gives the plain version, above 1 exaggerates. Images
/// have red, green and blue.
namespace shoal {

void change_brightness(EditedImage& image, double factor);  ///< plain: black
void change_contrast(EditedImage& image, double factor);    ///< plain: the mean of its grey values
void change_saturation(EditedImage& image, double factor);  ///< plain: its grey values
void change_sharpness(EditedImage& image, double factor);   ///< plain: a smoothed version

/// Sets red, green and blue to the grey value, 0.299 red + 0.587 green + 0.114 blue.
void make_grey(EditedImage& image);

}  // namespace shoal
