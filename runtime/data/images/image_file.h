#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/data_shape.h"

namespace shoal {

/// A decoded image, in red, green and blue.
struct DecodedImage {
  ImageShape shape;  ///< 3 channels
  std::vector<uint8_t> pixel_CHW;
};

/// Thrown for a file that was read but cannot be decoded.
class CorruptImage : public DataError {
 public:
  using DataError::DataError;
};

/// Decodes a JPEG or PNG file, recognised by its first bytes, not by its name. Grey values become
/// three equal ones, CMYK becomes red, green and blue; transparency and EXIF rotation are ignored.
///
/// Files are not trusted: refuses more than 64 million pixels before decoding, and in JPEG files
/// more than 100 scans, 512 MiB for the decoder, and what libjpeg only warns about (a truncated
/// file, wrong codes). `path`: for messages. `least_side`: decodes JPEG files at 1/2, 1/4 or 1/8 of
/// their size, the smallest that leaves no side below it; PNG at full size. Throws: CorruptImage.
DecodedImage decode_image(std::span<const std::byte> file, const std::string& path,
                          std::optional<int64_t> least_side = {});

}  // namespace shoal
