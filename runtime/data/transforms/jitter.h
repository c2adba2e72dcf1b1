#pragma once

#include <cstdint>

#include "runtime/data/pixel_transform.h"

namespace shoal {

/// How far brightness, contrast and saturation may move from 1, and the hue from 0.
struct JitterStrengths {
  double brightness = 0.0;
  double contrast = 0.0;
  double saturation = 0.0;
  double hue = 0.0;  ///< turns of a circle
};

/// Changes the four in random order, each by a factor (of the hue: a turn) drawn evenly; those of
/// strength 0 are left alone. In place; images have red, green and blue. Takes five draws from
/// `first` on.
/// Source: torchvision's ColorJitter.
void jitter_colours(const JitterStrengths& strengths, const TransformDraws& draws, uint32_t first,
                    EditedImage& image);

}  // namespace shoal
