#include "runtime/data/images/png_decoder.h"

#include <png.h>

namespace shoal {
namespace {

/// Four bytes a pixel without the fourth.
std::vector<uint8_t> without_alpha(const std::vector<uint8_t>& rgba) {
  std::vector<uint8_t> rgb;
  rgb.reserve(rgba.size() / 4 * 3);
  for (size_t i = 0; i + 3 < rgba.size(); i += 4) {
    rgb.insert(rgb.end(), {rgba[i], rgba[i + 1], rgba[i + 2]});
  }
  return rgb;
}

}  // namespace

InterleavedImage decode_png(std::span<const std::byte> file) {
  png_image reader{};
  reader.version = PNG_IMAGE_VERSION;
  InterleavedImage image;
  if (png_image_begin_read_from_memory(&reader, file.data(), file.size()) == 0) {
    image.problem = reader.message;
    return image;
  }
  image.height = reader.height;
  image.width = reader.width;
  image.problem = size_problem(image.height, image.width);
  if (image.problem.empty()) {
    // Reading without alpha would blend into a background.
    reader.format = PNG_FORMAT_RGBA;
    std::vector<uint8_t> rgba(PNG_IMAGE_SIZE(reader));
    if (png_image_finish_read(&reader, nullptr, rgba.data(), 0, nullptr) == 0 ||
        PNG_IMAGE_FAILED(reader)) {
      image.problem = reader.message;
    } else {
      image.pixel_HWC = without_alpha(rgba);
    }
  }
  png_image_free(&reader);
  return image;
}

}  // namespace shoal
