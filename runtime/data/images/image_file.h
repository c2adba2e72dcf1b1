#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/data_shape.h"

namespace shoal {

/// An image as its file holds it, in red, green and blue.
struct DecodedImage {
  ImageShape shape;  ///< 3 channels
  std::vector<uint8_t> pixel_CHW;
};

/// An image's bytes cannot be decoded, though its file could be read.
class CorruptImage : public DataError {
 public:
  using DataError::DataError;
};

/// Decodes a JPEG or PNG file, told apart by its first bytes, not by its name. Grey values become
/// three equal ones, CMYK becomes red, green and blue; transparency and EXIF rotation are ignored.
///
/// Files may be hostile: more than 64 million pixels, more than 100 scans and JPEG decoders that
/// want more than 512 MiB are refused before the work is done, and what libjpeg only warns of (a
/// file cut short, wrong codes) is refused too. `path`: for messages. `least_side`: as in
/// decode_jpeg; PNG files are decoded whole. Throws: CorruptImage.
DecodedImage decode_image(std::span<const std::byte> file, const std::string& path,
                          std::optional<int64_t> least_side = {});

}  // namespace shoal
