#include "launch/pages/picture.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>

namespace shoal {
namespace {

/// Equally spaced colours 0xRRGGBB.
constexpr std::array kViridis{0x440154, 0x482878, 0x3e4989, 0x31688e, 0x26828e,
                              0x1f9e89, 0x35b779, 0x6ece58, 0xb5de2b, 0xfde725};
constexpr std::array kBlueToRed{0x0b3c7d, 0x2f79b9, 0x86b8dc, 0xeeeeee,
                                0xf0a078, 0xcf4b3a, 0x8c0f26};

/// Interpolates at `place` in [0, 1] between at least two equally spaced colours 0xRRGGBB.
Rgb colour_between(std::span<const int> stops, double place) {
  const double at = std::clamp(place, 0.0, 1.0) * static_cast<double>(stops.size() - 1);
  const auto lower = std::min(static_cast<size_t>(at), stops.size() - 2);
  Rgb colour;
  for (size_t channel = 0; channel < 3; ++channel) {
    const auto part = [&](int rgb) {
      return static_cast<double>((rgb >> (16 - 8 * channel)) & 0xff);
    };
    const double value =
        std::lerp(part(stops[lower]), part(stops[lower + 1]), at - static_cast<double>(lower));
    colour[channel] = static_cast<uint8_t>(std::lround(value));
  }
  return colour;
}

/// The colours of a picture, if there are at most 256, and each pixel's index into them.
struct Palette {
  static constexpr size_t kMostColours = 256;
  bool fits = true;
  std::vector<Rgb> colours;
  std::vector<uint8_t> place;

  explicit Palette(const Picture& picture) {
    std::map<Rgb, uint8_t> place_of;
    place.reserve(picture.pixels.size());
    for (const Rgb& pixel : picture.pixels) {
      const auto [found, is_new] =
          place_of.try_emplace(pixel, static_cast<uint8_t>(colours.size()));
      if (is_new && colours.size() == kMostColours) {
        fits = false;
        return;
      }
      if (is_new) colours.push_back(pixel);
      place.push_back(found->second);
    }
  }
};

// A PNG file: 8 bytes, then chunks of length, type, content and checksum.
constexpr size_t kChunkBytes = 12;                  ///< of a chunk without content
constexpr size_t kPngStart = 8 + kChunkBytes + 13;  ///< up to the first chunk's end
constexpr char kPngText[] = "Description";          ///< and a zero behind it

uint32_t big_endian(std::string_view bytes) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) number = number << 8 | static_cast<uint8_t>(bytes[i]);
  return number;
}

std::string big_endian_bytes(uint32_t number) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

/// CRC-32 as in PNG; crc32c.h has another polynomial.
uint32_t png_checksum(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

std::string text_chunk(const std::string& text) {
  const std::string content = std::string(kPngText, sizeof kPngText) + text;
  const std::string chunk = "tEXt" + content;
  return big_endian_bytes(static_cast<uint32_t>(content.size())) + chunk +
         big_endian_bytes(png_checksum(chunk));
}

}  // namespace

Rgb viridis(double place) { return colour_between(kViridis, place); }

Rgb blue_to_red(double place) { return colour_between(kBlueToRed, (place + 1) / 2); }

std::string hex_colour(const Rgb& colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour[0], colour[1], colour[2]);
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

Picture viridis_picture(int64_t width, int64_t height, const std::vector<double>& values,
                        double most) {
  Picture picture{width, height, {}};
  for (const double value : values) {
    picture.pixels.push_back(viridis(most > 0 ? value / most : 0.0));
  }
  return picture;
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

std::string png_bytes(const Picture& picture, const std::string& description) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  const Palette palette(picture);
  image.format = palette.fits ? PNG_FORMAT_RGB_COLORMAP : PNG_FORMAT_RGB;
  image.colormap_entries = static_cast<png_uint_32>(palette.colours.size());
  const void* pixels = palette.fits ? static_cast<const void*>(palette.place.data())
                                    : static_cast<const void*>(picture.pixels.data());
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&image, bytes.data(), &size, /*convert_to_8_bit=*/0, pixels,
                                /*row_stride=*/0, palette.colours.data()) == 0) {
    throw std::logic_error(fmt::format("libpng refuses a picture of {} x {} pixels: {}",
                                       picture.width, picture.height, image.message));
  }
  bytes.resize(size);
  if (!description.empty()) bytes.insert(kPngStart, text_chunk(description));
  return bytes;
}

std::optional<PngHead> read_png_head(std::string_view bytes) {
  const std::string_view text_begin(kPngText, sizeof kPngText);
  if (bytes.size() < kPngStart || !bytes.starts_with("\x89PNG\r\n\x1a\n")) return std::nullopt;
  PngHead head{big_endian(bytes.substr(16)), big_endian(bytes.substr(20)), ""};
  for (bytes.remove_prefix(8); bytes.size() >= kChunkBytes;) {
    const std::string_view kind = bytes.substr(4, 4);
    const size_t size = big_endian(bytes);
    if (size > bytes.size() - kChunkBytes) return std::nullopt;
    const std::string_view content = bytes.substr(8, size);
    if (kind == "IEND") return head;
    if (kind == "tEXt" && content.starts_with(text_begin)) {
      head.description = content.substr(text_begin.size());
    }
    bytes.remove_prefix(kChunkBytes + size);
  }
  return std::nullopt;
}

}  // namespace shoal
