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

/// The colour at `place` in [0, 1] of viridis, whose lightness rises evenly, also for the
/// colour-blind. `place` is clamped.
Rgb viridis(double place);

/// The colour at `place` in [-1, 1] from dark blue over light grey to dark red, which the
/// colour-blind tell apart, too. `place` is clamped.
Rgb blue_to_red(double place);

/// At `place` in [0, 1] between colours at even distances, 0xRRGGBB, of which there are two or
/// more.
Rgb colour_between(std::span<const int> stops, double place);

/// `#26828e`.
std::string hex_colour(const Rgb& colour);

/// A number beside a scale of colours.
struct ScaleTick {
  double place = 0;  ///< along it, in [0, 1]
  std::string label;
};

/// A picture of 8-bit colours, row by row from the top.
struct Picture {
  int64_t width = 0, height = 0;
  std::vector<Rgb> pixels;  ///< width * height
};

/// Of [C, H, W]: values in [0, 1]; of other than three channels the first one is shown grey. NaN is
/// black.
Picture picture_of(const torch::Tensor& pixel_CHW);

/// Each pixel `factor` times as wide and as high.
Picture enlarge(const Picture& picture, int64_t factor);

/// Enlarged as often as keeps its longer side within `side`, at least once.
Picture enlarge_small(const Picture& picture, int64_t side = 128);

/// Pictures in rows of `columns`, each in a cell as large as the largest, with white gaps.
Picture tile(const std::vector<Picture>& pictures, int64_t columns, int64_t gap);

/// The picture as a compressed PNG file, of up to 256 colours one with a palette. It has at least
/// one pixel. `description`, of ASCII, goes into the file's text of that name.
std::string png_bytes(const Picture& picture, const std::string& description = "");

/// Size and description of a picture, from the head of its PNG file.
struct PngHead {
  int64_t width = 0, height = 0;
  std::string description;  ///< "": none
};
/// Nothing if the bytes are no PNG file, or not all of one.
std::optional<PngHead> read_png_head(std::string_view bytes);

}  // namespace shoal
