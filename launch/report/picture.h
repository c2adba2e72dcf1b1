#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

// C channels  H height  W width
namespace shoal {

using Rgb = std::array<uint8_t, 3>;

/// The colour at `place` in [0, 1] of viridis, whose lightness rises evenly, also for the
/// colour-blind. `place` is clamped.
Rgb viridis(double place);

/// `#26828e`.
std::string hex_colour(const Rgb& colour);

/// A picture of 8-bit colours, row by row from the top.
struct Picture {
  int64_t width = 0, height = 0;
  std::vector<Rgb> pixels;  ///< width * height
};

/// Each pixel `factor` times as wide and as high.
Picture enlarge(const Picture& picture, int64_t factor);

/// Enlarged as often as keeps its longer side within `side`, at least once.
Picture enlarge_small(const Picture& picture, int64_t side = 128);

/// Values in [0, 1]; of other than three channels the first one is shown grey. NaN is black.
Picture picture_of(const torch::Tensor& pixel_CHW);

/// Pictures in rows of `columns`, each in a cell as large as the largest, with white gaps.
Picture tile(const std::vector<Picture>& pictures, int64_t columns, int64_t gap);

/// The picture as a PNG file. It has at least one pixel.
std::string png_bytes(const Picture& picture);

}  // namespace shoal
