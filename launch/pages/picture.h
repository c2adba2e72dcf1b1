#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// C channels  H height  W width
namespace shoal {

using Rgb = std::array<uint8_t, 3>;

/// The viridis colour at `place` in [0, 1], clamped; its lightness increases uniformly, also for
/// the colour-blind.
Rgb viridis(double place);

/// The colour at `place` in [-1, 1], clamped, from dark blue over light grey to dark red;
/// distinguishable by the colour-blind.
Rgb blue_to_red(double place);

/// The colour at `place` in [0, 1] between evenly spaced colours 0xRRGGBB, at least two.
Rgb colour_between(std::span<const int> stops, double place);

/// Formats a colour for CSS, `#26828e`.
std::string hex_colour(const Rgb& colour);

/// A label on a colour scale.
struct ScaleTick {
  double place = 0;  ///< position along the scale, in [0, 1]
  std::string label;
};

/// Picture of 8-bit RGB colours, row by row from the top.
struct Picture {
  int64_t width = 0, height = 0;
  std::vector<Rgb> pixels;  ///< width * height
};

/// Converts [C, H, W] with values in [0, 1]; unless there are three channels, shows the first in
/// grey. NaN is black.
Picture picture_of(const torch::Tensor& pixel_CHW);

/// Repeats each pixel `factor` times in both directions.
Picture enlarge(const Picture& picture, int64_t factor);

/// Enlarges by the largest factor that keeps the longer side within `side`, at least 1.
Picture enlarge_small(const Picture& picture, int64_t side = 128);

/// Arranges pictures in rows of `columns`, each in a cell as large as the largest, with white gaps.
Picture tile(const std::vector<Picture>& pictures, int64_t columns, int64_t gap);

/// The picture as a compressed PNG file, with a palette if it has up to 256 colours. It has at
/// least one pixel. `description`, in ASCII, becomes the file's text of that name.
std::string png_bytes(const Picture& picture, const std::string& description = "");

/// Size and description of a picture, from the start of its PNG file.
struct PngHead {
  int64_t width = 0, height = 0;
  std::string description;  ///< "": none
};
/// Nothing if the bytes are not a complete PNG file.
std::optional<PngHead> read_png_head(std::string_view bytes);

}  // namespace shoal
