#pragma once

#include "runtime/data/pixel_transform.h"

/// Maps each byte to another, in place, bit for bit as Pillow's ImageOps. Any number of channels.
namespace shoal {

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
