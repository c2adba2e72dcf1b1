#include "runtime/data/transforms/image_changes.h"

#include <algorithm>

#include "runtime/device/cpu_clones.h"

namespace shoal {
namespace {

constexpr int64_t kChunk = 256;

/// Some pixels as Pillow's mode HSV has them.
struct HsvChunk {
  int32_t hue[kChunk], saturation[kChunk], value[kChunk];
};

/// Colour planes of the pixels in the image.
struct RgbPlanes {
  uint8_t *red, *green, *blue;
};

// Loops without branches, to be vectorised. Types and order of operations are Pillow's.

SHOAL_CPU_CLONES void to_hsv(const RgbPlanes& rgb, int64_t count, HsvChunk& hsv) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const int32_t red = rgb.red[i], green = rgb.green[i], blue = rgb.blue[i];
    const int32_t larger = red > green ? red : green, smaller = red < green ? red : green;
    const int32_t most = larger > blue ? larger : blue, least = smaller < blue ? smaller : blue;
    const int32_t range = most - least;
    // Where all are equal the quotients are 0 whatever they are divided by.
    const auto spread = static_cast<float>(range > 0 ? range : 1);
    const float saturation = static_cast<float>(range) / static_cast<float>(most > 0 ? most : 1);
    // All bits set in the mask of the strongest colour, the first of equals.
    const int32_t if_red = -(red == most), if_green = -(green == most) & ~if_red;
    const int32_t if_blue = ~(if_red | if_green);
    // In sixths of a circle the hue is `start`, that colour, plus and minus a share.
    const int32_t start = (if_green & 2) | (if_blue & 4);
    const int32_t plus_byte = (if_red & blue) | (if_green & red) | (if_blue & green);
    const int32_t minus_byte = (if_red & green) | (if_green & blue) | (if_blue & red);
    const float plus = static_cast<float>(most - plus_byte) / spread;
    const float minus = static_cast<float>(most - minus_byte) / spread;
    const auto sixths =
        static_cast<float>(start + static_cast<double>(plus) - static_cast<double>(minus));
    const double turns = static_cast<double>(sixths) / 6.0 + 1.0;
    const auto hue = static_cast<float>(turns - static_cast<double>(static_cast<int32_t>(turns)));
    hsv.hue[i] = static_cast<int32_t>(static_cast<double>(hue) * 255.0);
    hsv.saturation[i] = static_cast<int32_t>(static_cast<double>(saturation) * 255.0);
    hsv.value[i] = most;
  }
}

/// Halves upwards; of numbers that are not negative.
SHOAL_INLINE int32_t rounded_byte_of(double number) { return static_cast<int32_t>(number + 0.5); }

SHOAL_CPU_CLONES void to_rgb(const HsvChunk& hsv, int64_t count, const RgbPlanes& rgb) {
  uint8_t *red = rgb.red, *green = rgb.green, *blue = rgb.blue;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const double sixths = static_cast<double>(hsv.hue[i]) * 6.0 / 255.0;
    const auto whole = static_cast<int32_t>(sixths);
    const auto part = static_cast<float>(sixths - static_cast<double>(whole));
    const auto share = static_cast<float>(static_cast<double>(hsv.saturation[i]) / 255.0);
    const int32_t value = hsv.value[i];
    const auto peak = static_cast<double>(value);
    const int32_t low = rounded_byte_of(peak * (1.0 - static_cast<double>(share)));
    const int32_t falling = rounded_byte_of(peak * (1.0 - static_cast<double>(share * part)));
    const int32_t rising = rounded_byte_of(
        peak * (1.0 - static_cast<double>(share) * (1.0 - static_cast<double>(part))));
    const int32_t sixth = whole == 6 ? 0 : whole;
    // Each colour is at its peak for two sixths, falls, is low for two and rises.
    const auto colour_at = [&](int32_t place) {
      return place < 2 ? value : (place == 2 ? falling : (place < 5 ? low : rising));
    };
    const auto place_after = [&](int32_t start) {
      return sixth + start - (sixth + start >= 6 ? 6 : 0);
    };
    red[i] = static_cast<uint8_t>(colour_at(place_after(1)));
    green[i] = static_cast<uint8_t>(colour_at(place_after(5)));
    blue[i] = static_cast<uint8_t>(colour_at(place_after(3)));
  }
}

}  // namespace

void shift_hue(EditedImage& image, double turn) {
  const int64_t pixels = image.shape.pixels();
  const auto shift = static_cast<int32_t>(turn * 255.0);
  HsvChunk hsv;
  for (int64_t begin = 0; begin < pixels; begin += kChunk) {
    const int64_t count = std::min(kChunk, pixels - begin);
    const RgbPlanes rgb{image.plane(0) + begin, image.plane(1) + begin, image.plane(2) + begin};
    to_hsv(rgb, count, hsv);
    for (int64_t i = 0; i < count; ++i) hsv.hue[i] = (hsv.hue[i] + shift) & 255;
    to_rgb(hsv, count, rgb);
  }
}

}  // namespace shoal
