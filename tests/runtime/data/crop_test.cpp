#include "runtime/data/crop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "runtime/files/sha256.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

/// One channel with the values that the results of Pillow 13.0.0 below were made of.
std::vector<uint8_t> pattern(int64_t height, int64_t width) {
  std::vector<uint8_t> pixel;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      pixel.push_back(static_cast<uint8_t>((y * 37 + x * x * 11 + y * x * 5) % 256));
    }
  }
  return pixel;
}

std::vector<uint8_t> resized(const std::vector<uint8_t>& pixel, int64_t height, int64_t width,
                             int64_t size) {
  const CropPlan plan{
      .height = height, .width = width, .resized_height = size, .resized_width = size};
  return cropped(pixel, {1, height, width}, plan, size);
}

TEST(Crop, ResizesByTheTriangleFilterWorkedByHand) {
  // Two outputs of four values: shares 3/7, 3/7, 1/7 of the first three and of the last three.
  const std::vector<uint8_t> row{0, 100, 200, 40};
  std::vector<uint8_t> square;
  for (int y = 0; y < 4; ++y) square.insert(square.end(), row.begin(), row.end());
  EXPECT_THAT(resized(square, 4, 4, 2), ElementsAre(71, 117, 71, 117));
  // Four outputs of two values: shares 1, 3/4, 1/4, 0 of the first.
  EXPECT_THAT(resized({0, 100, 0, 100}, 2, 2, 4),
              ElementsAre(0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100));
}

TEST(Crop, GivesPillowsValues) {
  EXPECT_THAT(resized(pattern(9, 13), 9, 13, 4),
              ElementsAreArray(
                  {71, 125, 111, 133, 142, 133, 139, 144, 131, 115, 130, 148, 85, 102, 108, 110}));
  EXPECT_THAT(resized(pattern(3, 4), 3, 4, 6),
              ElementsAreArray({0,  6,  17, 38,  72,  99,  9,  16, 28,  50,  84,  112,
                                28, 35, 49, 73,  109, 138, 46, 55, 70,  97,  134, 164,
                                65, 75, 91, 120, 159, 190, 74, 85, 102, 131, 171, 203}));
  EXPECT_THAT(resized(pattern(12, 5), 12, 5, 5),
              ElementsAreArray({34,  50,  87, 147, 167, 115, 141, 168, 174, 110, 162, 114, 88,
                                129, 106, 58, 87,  146, 84,  114, 117, 178, 67,  111, 152}));
}

TEST(Crop, GivesPillowsBytesOfMoreRowsAndColumnsThanAreFilteredAtOnce) {
  const auto hash = [](const std::vector<uint8_t>& pixel) {
    return sha256_hex({reinterpret_cast<const char*>(pixel.data()), pixel.size()}).substr(0, 16);
  };
  EXPECT_EQ(hash(resized(pattern(100, 75), 100, 75, 45)), "b5c8106acbb6489a");
  EXPECT_EQ(hash(resized(pattern(40, 33), 40, 33, 70)), "a26114c5a6673c5c");
}

TEST(Crop, TakesARectangleFirstAndASquareLast) {
  const CropPlan rectangle{
      .top = 3, .left = 4, .height = 11, .width = 17, .resized_height = 5, .resized_width = 5};
  EXPECT_THAT(cropped(pattern(20, 30), {1, 20, 30}, rectangle, 5),
              ElementsAreArray({129, 151, 134, 150, 130, 113, 134, 135, 140, 135, 111, 97, 110,
                                118, 125, 138, 117, 131, 98,  113, 150, 120, 116, 135, 115}));
  const CropPlan square{.height = 20,
                        .width = 30,
                        .resized_height = 8,
                        .resized_width = 12,
                        .square_top = 1,
                        .square_left = 3};
  EXPECT_THAT(cropped(pattern(20, 30), {1, 20, 30}, square, 6),
              ElementsAreArray({142, 147, 128, 155, 136, 116, 129, 142, 129, 138, 138, 132,
                                109, 105, 123, 112, 130, 141, 102, 114, 113, 100, 121, 100,
                                140, 126, 128, 144, 127, 111, 141, 137, 115, 119, 132, 144}));
}

TEST(Crop, KeepsPixelsThatAreNotResizedAndChannelsApart) {
  std::vector<uint8_t> image = pattern(6, 7);
  const std::vector<uint8_t> second(image.rbegin(), image.rend());
  image.insert(image.end(), second.begin(), second.end());
  const CropPlan plan{.height = 6,
                      .width = 7,
                      .resized_height = 6,
                      .resized_width = 7,
                      .square_top = 2,
                      .square_left = 4};
  const std::vector<uint8_t> found = cropped(image, {2, 6, 7}, plan, 3);
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t channel = i / 9, y = i / 3 % 3 + 2, x = i % 3 + 4;
    EXPECT_EQ(found[i], image[channel * 42 + y * 7 + x]) << i;
  }
}

TEST(Crop, RefusesAPlanBeyondTheImage) {
  const std::vector<uint8_t> image = pattern(6, 7);
  const CropPlan good{.height = 6, .width = 7, .resized_height = 6, .resized_width = 7};
  EXPECT_NO_THROW(cropped(image, {1, 6, 7}, good, 6));
  EXPECT_ANY_THROW(cropped(image, {1, 6, 7}, good, 7));
  CropPlan lower = good;
  lower.top = 1;
  EXPECT_ANY_THROW(cropped(image, {1, 6, 7}, lower, 6));
  EXPECT_ANY_THROW(cropped(image, {1, 7, 7}, good, 6));
}

}  // namespace
}  // namespace shoal
