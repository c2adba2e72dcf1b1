#include "launch/report/picture.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <stdexcept>

// C channels  H height  W width
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

Picture enlarge_small(const Picture& picture, int64_t side) {
  const int64_t longer = std::max<int64_t>(1, std::max(picture.width, picture.height));
  return enlarge(picture, std::max<int64_t>(1, side / longer));
}

Picture picture_of(const torch::Tensor& pixel_CHW) {
  torch::Tensor pixels = pixel_CHW.to(torch::kCPU, torch::kFloat64);
  if (pixels.size(0) != 3) pixels = pixels.narrow(0, 0, 1).expand({3, -1, -1});
  const torch::Tensor byte_HWC = (pixels.nan_to_num(0.0).clamp(0.0, 1.0) * 255 + 0.5)
                                     .to(torch::kUInt8)
                                     .permute({1, 2, 0})
                                     .contiguous();
  Picture picture{byte_HWC.size(1), byte_HWC.size(0), {}};
  picture.pixels.resize(static_cast<size_t>(picture.width * picture.height));
  std::memcpy(picture.pixels.data(), byte_HWC.const_data_ptr(), byte_HWC.nbytes());
  return picture;
}

Picture tile(const std::vector<Picture>& pictures, int64_t columns, int64_t gap) {
  int64_t width = 0, height = 0;
  for (const Picture& picture : pictures) {
    width = std::max(width, picture.width);
    height = std::max(height, picture.height);
  }
  const int64_t rows = (std::ssize(pictures) + columns - 1) / columns;
  Picture sheet{columns * (width + gap) - gap, rows * (height + gap) - gap, {}};
  sheet.pixels.assign(static_cast<size_t>(sheet.width * sheet.height), Rgb{255, 255, 255});
  for (int64_t i = 0; i < std::ssize(pictures); ++i) {
    const Picture& picture = pictures[static_cast<size_t>(i)];
    const int64_t left = i % columns * (width + gap), top = i / columns * (height + gap);
    for (int64_t y = 0; y < picture.height; ++y) {
      std::copy_n(picture.pixels.begin() + y * picture.width, picture.width,
                  sheet.pixels.begin() + (top + y) * sheet.width + left);
    }
  }
  return sheet;
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
