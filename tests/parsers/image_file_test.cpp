#include "runtime/data/images/image_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/images/image_decoders.h"
#include "tests/parsers/image_fixture.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::bytes_of;
using ::testing::HasSubstr;
using testing::jpeg_of;
using testing::JpegWish;
using ::testing::Not;
using testing::plain;
using testing::png_of;

constexpr int64_t kHeight = 16, kWidth = 24;

DecodedImage decoded(const std::string& file) { return decode_image(bytes_of(file), "a.jpg"); }

std::string refusal_of(const std::string& file) {
  try {
    decoded(file);
  } catch (const DataError& error) {
    return error.what();
  }
  return "taken";
}

/// Every pixel has these three values, but for the rounding of a JPEG of best quality.
void expect_plain(const DecodedImage& image, const std::vector<int>& colour, int most_apart) {
  ASSERT_EQ(image.shape, (ImageShape{3, kHeight, kWidth}));
  ASSERT_EQ(std::ssize(image.pixel_CHW), image.shape.bytes());
  for (int64_t i = 0; i < image.shape.bytes(); ++i) {
    const int wanted = colour[static_cast<size_t>(i / image.shape.pixels())];
    ASSERT_NEAR(image.pixel_CHW[static_cast<size_t>(i)], wanted, most_apart) << i;
  }
}

std::string jpeg(const std::vector<uint8_t>& colour, const JpegWish& wish) {
  return jpeg_of(plain(colour, kHeight * kWidth), wish);
}

/// The file with the height and width of its frame header replaced.
std::string with_size(std::string file, int height, int width, char frame = '\xC0') {
  const size_t header = file.find(std::string("\xFF") + frame);
  for (const auto& [at, value] : {std::pair{5, height}, {7, width}}) {
    file[header + static_cast<size_t>(at)] = static_cast<char>(value >> 8);
    file[header + static_cast<size_t>(at) + 1] = static_cast<char>(value & 255);
  }
  return file;
}

TEST(ImageFile, DecodesJpegOfAllColourSpaces) {
  expect_plain(decoded(jpeg({200, 100, 50}, {})), {200, 100, 50}, 2);
  expect_plain(decoded(jpeg({200, 100, 50}, {.is_progressive = true})), {200, 100, 50}, 2);
  expect_plain(decoded(jpeg({77}, {.stored = JCS_GRAYSCALE})), {77, 77, 77}, 1);
  // Inverted inks: no cyan, all magenta, half of the yellow, a fifth of black.
  expect_plain(decoded(jpeg({255, 0, 128, 204}, {.stored = JCS_CMYK})), {204, 0, 102}, 2);
}

TEST(ImageFile, DecodesPngAndDropsTransparency) {
  const int64_t pixels = kHeight * kWidth;
  expect_plain(decoded(png_of(plain({9, 8, 7}, pixels), kHeight, kWidth, PNG_FORMAT_RGB)),
               {9, 8, 7}, 0);
  expect_plain(decoded(png_of(plain({9, 8, 7, 3}, pixels), kHeight, kWidth, PNG_FORMAT_RGBA)),
               {9, 8, 7}, 0);
  expect_plain(decoded(png_of(plain({9}, pixels), kHeight, kWidth, PNG_FORMAT_GRAY)), {9, 9, 9}, 0);
}

/// libpng's simple functions would read both as light, and change the values.
TEST(ImageFile, KeepsPngValuesWithGammaAndOfSixteenBits) {
  const std::vector<uint8_t> colour{64, 128, 200};
  const std::string png = png_of(plain(colour, kHeight * kWidth), kHeight, kWidth, PNG_FORMAT_RGB);
  const size_t header_end = 8 + 25;
  // gAMA, 100000 = 1.0, with its checksum.
  const std::string gamma("\0\0\0\4gAMA\0\1\x86\xA0\x31\xE8\x96\x5F", 16);
  expect_plain(decoded(png.substr(0, header_end) + gamma + png.substr(header_end)), {64, 128, 200},
               0);
  expect_plain(decoded(testing::sixteen_bit_png({64 * 257, 128 * 257, 200 * 257}, kHeight, kWidth)),
               {64, 128, 200}, 0);
}

/// A ramp to the right, so that a pixel of a smaller image is the mean of those it stands for.
std::vector<uint8_t> ramp(int64_t height, int64_t width) {
  std::vector<uint8_t> value;
  for (int64_t i = 0; i < height * width; ++i) {
    value.push_back(static_cast<uint8_t>(40 + i % width));
  }
  return value;
}

TEST(ImageFile, DecodesJpegAtTheLeastSizeThatIsAllowed) {
  constexpr int64_t kTall = 50, kWide = 101;
  const std::string jpeg =
      jpeg_of(ramp(kTall, kWide), {.height = kTall, .width = kWide, .stored = JCS_GRAYSCALE});
  const auto expect_scale = [&](int64_t least_side, int64_t scale) {
    const DecodedImage image = decode_image(bytes_of(jpeg), "a.jpg", least_side);
    const int64_t height = (kTall + scale - 1) / scale, width = (kWide + scale - 1) / scale;
    ASSERT_EQ(image.shape, (ImageShape{3, height, width})) << least_side;
    for (int64_t x = 0; x < kWide / scale; ++x) {
      const double mean = 40.0 + static_cast<double>(x * scale) + (scale - 1) / 2.0;
      EXPECT_NEAR(image.pixel_CHW[static_cast<size_t>(x)], mean, 1.6) << least_side << " " << x;
    }
  };
  expect_scale(51, 1);
  expect_scale(26, 1);
  expect_scale(25, 2);
  expect_scale(14, 2);
  expect_scale(13, 4);
  expect_scale(7, 8);
  expect_scale(1, 8);
}

TEST(ImageFile, KeepsPlacesOfPixelsApart) {
  std::vector<uint8_t> pixel_HWC;
  for (int64_t i = 0; i < 2 * 3 * 3; ++i) pixel_HWC.push_back(static_cast<uint8_t>(10 * i));
  const DecodedImage image = decoded(png_of(pixel_HWC, 2, 3, PNG_FORMAT_RGB));
  EXPECT_EQ(image.shape, (ImageShape{3, 2, 3}));
  EXPECT_THAT(image.pixel_CHW, ::testing::ElementsAre(0, 30, 60, 90, 120, 150, 10, 40, 70, 100, 130,
                                                      160, 20, 50, 80, 110, 140, 170));
}

TEST(ImageFile, RefusesAFileThatIsCutShortAtAnyByte) {
  const auto expect_refused = [](const std::string& file, size_t end_marker) {
    for (size_t size = 0; size + end_marker < file.size(); ++size) {
      EXPECT_THAT(refusal_of(file.substr(0, size)),
                  ::testing::AnyOf(HasSubstr("a.jpg: corrupt "), HasSubstr("a.jpg: neither ")))
          << size;
    }
  };
  expect_refused(jpeg({200, 100, 50}, {}), 2);
  expect_refused(jpeg({200, 1, 5}, {.is_progressive = true}), 2);
  expect_refused(png_of(plain({9, 8, 7}, kHeight * kWidth), kHeight, kWidth, PNG_FORMAT_RGB), 0);
}

TEST(ImageFile, RefusesWhatIsNoImage) {
  EXPECT_THAT(refusal_of("hello, world"), HasSubstr("neither a JPEG nor a PNG file"));
  EXPECT_THAT(refusal_of(""), HasSubstr("it is empty"));
  EXPECT_THAT(refusal_of("\xFF\xD8\xFFxxxxxxxxxxxx"), HasSubstr("corrupt JPEG"));
  EXPECT_THAT(refusal_of("\x89PNG\r\n\x1A\nxxxxxxxxxxx"), HasSubstr("corrupt PNG"));
}

TEST(ImageFile, RefusesTooManyPixelsBeforeDecodingThem) {
  EXPECT_THAT(refusal_of(with_size(jpeg({1, 2, 3}, {}), 20000, 20000)),
              AllOf(HasSubstr("20000 x 20000 pixels"), HasSubstr("64 million")));
  EXPECT_THAT(refusal_of(with_size(jpeg({1, 2, 3}, {.is_progressive = true}), 8001, 8000, '\xC2')),
              HasSubstr("8001 x 8000 pixels"));
  EXPECT_THAT(refusal_of(with_size(jpeg({1, 2, 3}, {}), 8000, 8000)), HasSubstr("corrupt JPEG"));
  EXPECT_THROW(decode_image(bytes_of(with_size(jpeg({1, 2, 3}, {}), 20000, 20000)), "a.jpg", 1),
               CorruptImage);  // its own size counts, not that of what would be decoded
}

TEST(ImageFile, RefusesPngOfTooManyPixelsOrTooLongASide) {
  // The size in the header, and the header's checksum.
  const auto refusal = [](const std::string& size_and_type, const std::string& checksum) {
    std::string png = png_of({9, 8, 7}, 1, 1, PNG_FORMAT_RGB);
    png.replace(16, 13, size_and_type);
    png.replace(29, 4, checksum);
    return refusal_of(png);
  };
  using namespace std::string_literals;
  EXPECT_THAT(refusal("\0\0\x4E\x20\0\0\x4E\x20\x08\x02\0\0\0"s, "\x6C\x12\xD1\x6E"),
              HasSubstr("20000 x 20000 pixels"));
  EXPECT_THAT(refusal("\0\0\0\x01\0\x01\0\0\x08\x02\0\0\0"s, "\x97\x81\x80\xE5"),
              AllOf(HasSubstr("corrupt PNG: "), Not(HasSubstr("CRC"))));
}

TEST(ImageFile, RefusesMoreThanAHundredScans) {
  EXPECT_THAT(refusal_of(jpeg({1, 200, 3}, {.has_a_scan_per_coefficient = true})),
              HasSubstr("it has more than 100 scans"));
}

TEST(ImageFile, AnswersEveryChangeOfOneByte) {
  const std::string good = jpeg({200, 100, 50}, {.is_progressive = true});
  int refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {1, 0x80, 0xFF}) {
      std::string file = good;
      file[i] = static_cast<char>(file[i] ^ flip);
      refused += refusal_of(file) != "taken" ? 1 : 0;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace shoal
