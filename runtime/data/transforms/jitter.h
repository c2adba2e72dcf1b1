#pragma once

#include <cstdint>
#include <tuple>

#include "runtime/data/pixel_transform.h"

namespace shoal {

/// Largest change of brightness, contrast and saturation from factor 1, and of the hue from 0.
struct JitterStrengths {
  double brightness = 0.0;
  double contrast = 0.0;
  double saturation = 0.0;
  double hue = 0.0;  ///< turns of a circle

  static constexpr auto fields() {
    return std::tuple{
        field("brightness", &JitterStrengths::brightness, "maximum deviation of the factor from 1",
              in_range(0, 10)),
        field("contrast", &JitterStrengths::contrast, "as brightness", in_range(0, 10)),
        field("saturation", &JitterStrengths::saturation, "as brightness", in_range(0, 10)),
        field("hue", &JitterStrengths::hue, "maximum rotation of the hue, in either direction",
              unit("circles"), in_range(0, 0.5))};
  }
};

/// Changes brightness, contrast, saturation and hue in random order, each by a factor (the hue: by
/// a turn) drawn uniformly; skips those of strength 0. In place; images have red, green and blue.
/// Uses the draws with index first to first + 4. Source: torchvision's ColorJitter.
void jitter_colours(const JitterStrengths& strengths, const TransformDraws& draws, uint32_t first,
                    EditedImage& image);

}  // namespace shoal
