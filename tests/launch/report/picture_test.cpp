#include "launch/report/picture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>

namespace shoal {
namespace {

uint32_t big_endian_at(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes.at(at + i));
  return value;
}

/// By the definition: the remainder of a division of polynomials.
uint32_t crc_of(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t in = static_cast<uint32_t>(byte) >> bit & 1;
      crc = (crc >> 1) ^ ((crc & 1) == in ? 0 : 0xedb88320);
    }
  }
  return ~crc;
}

/// The chunks' types, in order; their sizes and checksums must be right.
std::string types_of(const std::string& png, std::string& data) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::string types;
  for (size_t at = 8; at < png.size();) {
    const size_t size = big_endian_at(png, at);
    EXPECT_EQ(big_endian_at(png, at + 8 + size), crc_of(png.substr(at + 4, size + 4)));
    types += png.substr(at + 4, 4) + " ";
    if (png.substr(at + 4, 4) == "IDAT") data += png.substr(at + 8, size);
    at += size + 12;
  }
  return types;
}

/// What a zlib stream of stored blocks holds.
std::string unpack(const std::string& stream) {
  std::string bytes;
  bool is_last = false;
  size_t at = 2;
  EXPECT_EQ((static_cast<uint8_t>(stream[0]) * 256 + static_cast<uint8_t>(stream[1])) % 31, 0);
  while (!is_last) {
    is_last = stream.at(at) == 1;
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(stream.at(at + i)); };
    const size_t size = byte(1) + 256u * byte(2);
    EXPECT_EQ(size ^ 0xffff, byte(3) + 256u * byte(4));
    bytes += stream.substr(at + 5, size);
    at += 5 + size;
  }
  uint32_t a = 1, b = 0;
  for (const char c : bytes) a = (a + static_cast<uint8_t>(c)) % 65521, b = (b + a) % 65521;
  EXPECT_EQ(big_endian_at(stream, at), b << 16 | a);
  EXPECT_EQ(stream.size(), at + 4);
  return bytes;
}

TEST(Png, HoldsThePixelsInRowsWithChecksums) {
  const Picture picture{
      3, 2, {{255, 0, 1}, {2, 3, 4}, {5, 6, 7}, {8, 9, 10}, {11, 12, 13}, {0, 0, 0}}};
  const std::string png = png_bytes(picture);
  std::string data;
  EXPECT_EQ(types_of(png, data), "IHDR IDAT IEND ");
  EXPECT_EQ(big_endian_at(png, 16), 3u);
  EXPECT_EQ(big_endian_at(png, 20), 2u);
  constexpr std::string_view kRows(
      "\0\xff\0\1\2\3\4\5\6\7"
      "\0\x8\x9\xa\xb\xc\xd\0\0\0",
      20);
  EXPECT_EQ(unpack(data), kRows);
}

TEST(Png, HoldsMoreThanABlock) {
  Picture picture{200, 150, {}};
  for (int64_t i = 0; i < 200 * 150; ++i) picture.pixels.push_back(viridis(i % 97 / 97.0));
  std::string data;
  types_of(png_bytes(picture), data);
  const std::string bytes = unpack(data);
  ASSERT_EQ(bytes.size(), 150u * 601u);
  EXPECT_EQ(static_cast<uint8_t>(bytes[149 * 601 + 1 + 3 * 199 + 2]), picture.pixels.back()[2]);
}

TEST(Picture, IsEnlargedPixelByPixel) {
  const Picture large = enlarge({2, 1, {{1, 1, 1}, {2, 2, 2}}}, 2);
  EXPECT_EQ(large.width, 4);
  EXPECT_EQ(large.height, 2);
  const Rgb one{1, 1, 1}, two{2, 2, 2};
  EXPECT_EQ(large.pixels, (std::vector<Rgb>{one, one, two, two, one, one, two, two}));
}

TEST(Viridis, GetsBrighterFromEndToEnd) {
  EXPECT_EQ(hex_colour(viridis(0)), "#440154");
  EXPECT_EQ(hex_colour(viridis(1)), "#fde725");
  EXPECT_EQ(viridis(-3), viridis(0));
  EXPECT_EQ(viridis(7), viridis(1));
  double before = -1.0;
  for (int i = 0; i <= 32; ++i) {
    const Rgb colour = viridis(i / 32.0);
    const auto light = [&](size_t channel) { return std::pow(colour[channel] / 255.0, 2.2); };
    const double lightness = 0.2126 * light(0) + 0.7152 * light(1) + 0.0722 * light(2);
    EXPECT_GT(lightness, before) << i;
    before = lightness;
  }
}

}  // namespace
}  // namespace shoal
