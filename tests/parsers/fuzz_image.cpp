#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>

#include "runtime/data/images/image_file.h"

/// Input: an image file. Whatever it is, decoding it, whole or at the least size whose shorter side
/// has 8 pixels, ends with three bytes a pixel, or with a CorruptImage.
namespace shoal {
namespace {

std::optional<DecodedImage> decoded(std::span<const std::byte> file,
                                    std::optional<int64_t> least_side) {
  try {
    DecodedImage image = decode_image(file, "fuzz", least_side);
    if (image.shape.channels != 3 || image.shape.pixels() < 1 ||
        std::ssize(image.pixel_CHW) != image.shape.bytes()) {
      std::abort();
    }
    return image;
  } catch (const CorruptImage&) {
    return std::nullopt;
  }
}

void read_image(std::span<const std::byte> file) {
  constexpr int64_t kLeastSide = 8;
  const auto whole = decoded(file, std::nullopt), reduced = decoded(file, kLeastSide);
  if (!whole || !reduced) return;
  for (const auto side : {&ImageShape::height, &ImageShape::width}) {
    const int64_t full = whole->shape.*side, kept = reduced->shape.*side;
    if (kept > full || (kept < full && kept < kLeastSide)) std::abort();
  }
}

}  // namespace
}  // namespace shoal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shoal::read_image(std::as_bytes(std::span(data, size)));
  return 0;
}
