#include "runtime/data/images/image_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "runtime/data/images/image_decoders.h"
#include "runtime/device/cpu_clones.h"

namespace shoal {
namespace {

template <size_t kBytes>
bool begins_with(std::span<const std::byte> file, const std::array<uint8_t, kBytes>& magic) {
  return file.size() >= kBytes &&
         std::equal(magic.begin(), magic.end(), file.begin(),
                    [](uint8_t wanted, std::byte found) { return std::byte{wanted} == found; });
}

/// [pixels, 3] -> [3, pixels].
SHOAL_CPU_CLONES void separate_colours(const uint8_t* __restrict__ pixel, int64_t num_pixels,
                                       uint8_t* __restrict__ red) {
  uint8_t* green = red + num_pixels;
  uint8_t* blue = green + num_pixels;
#pragma GCC ivdep
  for (int64_t i = 0; i < num_pixels; ++i) {
    red[i] = pixel[3 * i];
    green[i] = pixel[3 * i + 1];
    blue[i] = pixel[3 * i + 2];
  }
}

std::vector<uint8_t> planes_of(const std::vector<uint8_t>& pixel_HWC) {
  std::vector<uint8_t> pixel_CHW(pixel_HWC.size());
  separate_colours(pixel_HWC.data(), std::ssize(pixel_HWC) / 3, pixel_CHW.data());
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
