#include "launch/report/picture.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace shoal {
namespace {

/// At even distances, 0xRRGGBB.
constexpr std::array kViridis{0x440154, 0x482878, 0x3e4989, 0x31688e, 0x26828e,
                              0x1f9e89, 0x35b779, 0x6ece58, 0xb5de2b, 0xfde725};

}  // namespace

Rgb viridis(double place) {
  const double at = std::clamp(place, 0.0, 1.0) * static_cast<double>(kViridis.size() - 1);
  const auto lower = std::min(static_cast<size_t>(at), kViridis.size() - 2);
  Rgb colour;
  for (size_t channel = 0; channel < 3; ++channel) {
    const auto part = [&](int rgb) {
      return static_cast<double>((rgb >> (16 - 8 * channel)) & 0xff);
    };
    const double value = std::lerp(part(kViridis[lower]), part(kViridis[lower + 1]),
                                   at - static_cast<double>(lower));
    colour[channel] = static_cast<uint8_t>(std::lround(value));
  }
  return colour;
}

std::string hex_colour(const Rgb& colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour[0], colour[1], colour[2]);
}

Picture enlarge(const Picture& picture, int64_t factor) {
  Picture result{picture.width * factor, picture.height * factor, {}};
  result.pixels.reserve(static_cast<size_t>(result.width * result.height));
  for (int64_t y = 0; y < result.height; ++y) {
    for (int64_t x = 0; x < result.width; ++x) {
      result.pixels.push_back(
          picture.pixels[static_cast<size_t>(y / factor * picture.width + x / factor)]);
    }
  }
  return result;
}

std::string png_bytes(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&image, bytes.data(), &size, /*convert_to_8_bit=*/0,
                                picture.pixels.data(), /*row_stride=*/0, nullptr) == 0) {
    throw std::logic_error(fmt::format("libpng refuses a picture of {} x {} pixels: {}",
                                       picture.width, picture.height, image.message));
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace shoal
