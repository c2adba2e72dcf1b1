#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// C channels  H height  W width
namespace shoal {

using Rgb = std::array<uint8_t, 3>;

/// Colour at `place` in [0, 1] of viridis, a scale of uniformly rising lightness that is readable
/// for the colour-blind. `place` is clamped.
Rgb viridis(double place);

/// Colour at `place` in [-1, 1] of a scale from dark blue over light grey to dark red that is
/// readable for the colour-blind. `place` is clamped.
Rgb blue_to_red(double place);

/// Formats a colour for CSS, `#26828e`.
std::string hex_colour(const Rgb& colour);

/// Picture of 8-bit RGB colours, row by row from the top.
struct Picture {
  int64_t width = 0, height = 0;
  std::vector<Rgb> pixels;  ///< width * height
};

/// Converts [C, H, W] in [0, 1]: three channels in colour, else the first in grey. NaN is black.
Picture picture_of(const torch::Tensor& pixel_CHW);

/// Picture of width * height values in the colours of viridis, from 0 to `most`.
Picture viridis_picture(int64_t width, int64_t height, const std::vector<double>& values,
                        double most);

/// Magnifies a picture by an integer `factor`.
Picture enlarge(const Picture& picture, int64_t factor);

/// Magnifies by the largest integer, at least 1, that keeps the longer side within `side`.
Picture enlarge_small(const Picture& picture, int64_t side = 128);

/// Arranges pictures in rows of `columns`, in cells of the largest picture's size, with white gaps.
Picture tile(const std::vector<Picture>& pictures, int64_t columns, int64_t gap);

/// Encodes a picture of at least one pixel as PNG, with a palette if it has up to 256 colours.
/// `description`, in ASCII, is stored in the text chunk of that name.
std::string png_bytes(const Picture& picture, const std::string& description = "");

/// Size and description of a picture, from the header of its PNG file.
struct PngHead {
  int64_t width = 0, height = 0;
  std::string description;  ///< "": none
};
/// Reads a PNG header; nullopt if the bytes are not a complete PNG file.
std::optional<PngHead> read_png_head(std::string_view bytes);

}  // namespace shoal
