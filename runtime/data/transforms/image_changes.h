#pragma once

#include "runtime/data/pixel_transform.h"

/// Changes of an image in place, bit for bit as Pillow's.
namespace shoal {

// enhance.cpp: blends of an image with a plain version of itself (ImageEnhance). Factor 1 keeps the
// image, 0 gives the plain version, above 1 exaggerates. Images have red, green and blue.
void change_brightness(EditedImage& image, double factor);  ///< plain: black
void change_contrast(EditedImage& image, double factor);    ///< plain: the mean of its grey values
void change_saturation(EditedImage& image, double factor);  ///< plain: its grey values
void change_sharpness(EditedImage& image, double factor);   ///< plain: a smoothed version

/// Sets red, green and blue to the grey value, 0.299 red + 0.587 green + 0.114 blue.
void make_grey(EditedImage& image);

// hue.cpp
/// Shifts the hue of all pixels by `turn` of a circle, in [-0.5, 0.5], bit for bit as torchvision
/// on Pillow. Converts to HSV in bytes, adds trunc(255 * turn) to the hue modulo 256, and converts
/// back. Rounding to bytes changes some pixels even if `turn` is 0. For red, green and blue.
void shift_hue(EditedImage& image, double turn);

// gaussian_blur.cpp
/// GaussianBlur: three box filters along rows, then three along columns, of fractional width.
/// `sigma` is the standard deviation in pixels; 0 keeps the image. Border pixels repeat outside the
/// image. Any number of channels. Source: Gwosdek et al. 2011, "Theoretical foundations of Gaussian
/// convolution by extended box filtering".
void gaussian_blur(EditedImage& image, double sigma);

// tone.cpp: maps of each byte to another (ImageOps). Any number of channels.
void invert(EditedImage& image);
/// Inverts bytes of `threshold` and above; 256 keeps the image.
void solarise(EditedImage& image, int64_t threshold);
/// Adds `amount` to bytes below 128, clamping at 255 (timm; Pillow has no such operation).
void solarise_add(EditedImage& image, int64_t amount);
/// Keeps the `bits` highest bits; 8 or more keep the image, 0 or less make it black.
void posterise(EditedImage& image, int64_t bits);
/// Stretches each channel to the full range of bytes.
void auto_contrast(EditedImage& image);
/// Equalises the histogram of each channel.
void equalise(EditedImage& image);

}  // namespace shoal
