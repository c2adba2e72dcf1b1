#include "runtime/data/images/image_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "runtime/data/images/jpeg_decoder.h"
#include "runtime/data/images/png_decoder.h"

namespace shoal {
namespace {

template <size_t kBytes>
bool begins_with(std::span<const std::byte> file, const std::array<uint8_t, kBytes>& magic) {
  return file.size() >= kBytes &&
         std::equal(magic.begin(), magic.end(), file.begin(),
                    [](uint8_t wanted, std::byte found) { return std::byte{wanted} == found; });
}

/// Three bytes a pixel as planes of red, green and blue.
std::vector<uint8_t> planes_of(const std::vector<uint8_t>& pixel_HWC) {
  const size_t plane = pixel_HWC.size() / 3;
  std::vector<uint8_t> pixel_CHW(pixel_HWC.size());
  uint8_t* red = pixel_CHW.data();
  uint8_t* green = red + plane;
  uint8_t* blue = green + plane;
  const uint8_t* pixel = pixel_HWC.data();
  for (size_t i = 0; i < plane; ++i, pixel += 3) {
    red[i] = pixel[0];
    green[i] = pixel[1];
    blue[i] = pixel[2];
  }
  return pixel_CHW;
}

}  // namespace

DecodedImage decode_image(std::span<const std::byte> file, const std::string& path,
                          std::optional<int64_t> least_side) {
  constexpr std::array<uint8_t, 3> kJpeg{0xFF, 0xD8, 0xFF};
  constexpr std::array<uint8_t, 8> kPng{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  InterleavedImage image;
  std::string format;
  if (begins_with(file, kJpeg)) {
    format = "JPEG";
    image = decode_jpeg(file, least_side);
  } else if (begins_with(file, kPng)) {
    format = "PNG";
    image = decode_png(file);
  } else {
    throw CorruptImage(fmt::format("{}: neither a JPEG nor a PNG file, by its first bytes{}", path,
                                   file.empty() ? "; it is empty" : ""),
                       "take the file out of the data set, or set data.on_corrupt: skip");
  }
  if (!image.problem.empty()) {
    throw CorruptImage(
        fmt::format("{}: corrupt {}: {}", path, format, image.problem),
        "fetch the file again, take it out of the data set, or set data.on_corrupt: skip");
  }
  return {{3, image.height, image.width}, planes_of(image.pixel_HWC)};
}

}  // namespace shoal
