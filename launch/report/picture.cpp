#include "launch/report/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace shoal {
namespace {

constexpr std::array<Rgb, 10> kViridis{{{0x44, 0x01, 0x54},
                                        {0x48, 0x28, 0x78},
                                        {0x3e, 0x49, 0x89},
                                        {0x31, 0x68, 0x8e},
                                        {0x26, 0x82, 0x8e},
                                        {0x1f, 0x9e, 0x89},
                                        {0x35, 0xb7, 0x79},
                                        {0x6e, 0xce, 0x58},
                                        {0xb5, 0xde, 0x2b},
                                        {0xfd, 0xe7, 0x25}}};

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string little_endian(uint16_t value) {
  return {static_cast<char>(value & 0xff), static_cast<char>(value >> 8)};
}

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

uint32_t adler32(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

/// A zlib stream of stored blocks (RFC 1950, RFC 1951 section 3.2.4).
std::string stored(std::string_view bytes) {
  constexpr size_t kMost = 65535;
  std::string stream = "\x78\x01";
  for (size_t begin = 0; begin == 0 || begin < bytes.size(); begin += kMost) {
    const std::string_view block = bytes.substr(begin, kMost);
    const auto size = static_cast<uint16_t>(block.size());
    stream += begin + kMost >= bytes.size() ? '\1' : '\0';
    stream += little_endian(size) + little_endian(static_cast<uint16_t>(~size));
    stream += block;
  }
  return stream + big_endian(adler32(bytes));
}

std::string chunk(const std::string& type, const std::string& data) {
  return big_endian(static_cast<uint32_t>(data.size())) + type + data +
         big_endian(crc32(type + data));
}

}  // namespace

Rgb viridis(double place) {
  const double at = std::clamp(place, 0.0, 1.0) * static_cast<double>(kViridis.size() - 1);
  const auto lower = std::min(static_cast<size_t>(at), kViridis.size() - 2);
  Rgb colour;
  for (size_t channel = 0; channel < 3; ++channel) {
    const double value = std::lerp(static_cast<double>(kViridis[lower][channel]),
                                   static_cast<double>(kViridis[lower + 1][channel]),
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
  std::string scanlines;
  for (size_t i = 0; i < picture.pixels.size(); ++i) {
    if (i % static_cast<size_t>(picture.width) == 0) scanlines += '\0';  // no filter
    for (const uint8_t value : picture.pixels[i]) scanlines += static_cast<char>(value);
  }
  constexpr std::string_view kEightBitRgb("\x08\x02\x00\x00\x00", 5);
  const std::string header = big_endian(static_cast<uint32_t>(picture.width)) +
                             big_endian(static_cast<uint32_t>(picture.height)) +
                             std::string(kEightBitRgb);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", stored(scanlines)) +
         chunk("IEND", "");
}

}  // namespace shoal
