#pragma once

#include "runtime/data/pixel_transform.h"

/// Changes of each byte by a rule for bytes, in place, with the bytes of Pillow's ImageOps.
/// Any number of channels.
namespace shoal {

void invert(EditedImage& image);
/// Inverts bytes of `threshold` and above; 256 keeps the image.
void solarise(EditedImage& image, int64_t threshold);
/// Adds `amount`, at most to 255, to bytes below 128 (timm; Pillow has no such operation).
void solarise_add(EditedImage& image, int64_t amount);
/// Keeps the `bits` highest bits; 8 and more keep the image, 0 and less make it black.
void posterise(EditedImage& image, int64_t bits);
/// Stretches each channel to the whole range of bytes.
void auto_contrast(EditedImage& image);
/// Gives each channel an even histogram.
void equalise(EditedImage& image);

}  // namespace shoal
