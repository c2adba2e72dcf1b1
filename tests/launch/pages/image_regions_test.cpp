#include "launch/pages/image_regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace shoal {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

/// 8 x 8 pixels: the left half white, the right half black.
Picture half_bright() {
  Picture image{8, 8, {}};
  for (int64_t i = 0; i < 64; ++i) {
    image.pixels.push_back(i % 8 < 4 ? Rgb{255, 255, 255} : Rgb{0, 0, 0});
  }
  return image;
}

TEST(ImageRegions, HaveBrightnessContrastEdgesAndPlace) {
  // The brightness falls by 1 between columns 3 and 4; by central differences those two have a
  // gradient of 1/2, which is a quarter of the columns of either patch.
  EXPECT_THAT(region_features(half_bright(), 2, 2),
              ElementsAre(RegionFeatures{1, 0, 0.125, 0.25}, RegionFeatures{0, 0, 0.125, 0.25},
                          RegionFeatures{1, 0, 0.125, 0.75}, RegionFeatures{0, 0, 0.125, 0.75}));
  EXPECT_THAT(region_features(half_bright(), 1, 1),
              ElementsAre(RegionFeatures{0.5, 0.5, 0.125, 0.5}));
}

TEST(ImageRegions, GradientsAtTheBorderAreOneSidedAndColoursAreAveraged) {
  // Brightness 0, 1/3, 2/3 from left to right: a slope of 1/3 everywhere.
  const Picture ramp{3, 1, {{0, 0, 0}, {0, 255, 0}, {255, 0, 255}}};
  const auto patches = region_features(ramp, 1, 3);
  ASSERT_EQ(patches.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(patches[i][0], static_cast<double>(i) / 3, 1e-15);
    EXPECT_NEAR(patches[i][2], 1.0 / 3, 1e-15);
  }
}

TEST(ImageRegions, MeansAddUpPixelsInOrder) {
  Picture image{31, 31, {}};
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < 31 * 31; ++i) {
    const auto value = static_cast<uint8_t>(i * i * 7919 % 251);
    image.pixels.push_back({value, value, 0});
    sum += 2 * value / (3 * 255.0);
  }
  for (const Rgb& pixel : image.pixels) {
    const double from_mean = 2 * pixel[0] / (3 * 255.0) - sum / (31 * 31);
    squares += from_mean * from_mean;
  }
  const RegionFeatures features = region_features(image, 1, 1)[0];
  EXPECT_EQ(features[0], sum / (31 * 31));
  EXPECT_EQ(features[1], std::sqrt(squares / (31 * 31)));
}

TEST(ImageRegions, PatchesThatDoNotFillTheImageLeaveItsRest) {
  const auto patches = region_features(half_bright(), 2, 2);
  Picture larger{9, 9, {}};
  for (int64_t y = 0; y < 9; ++y) {
    for (int64_t x = 0; x < 9; ++x) {
      larger.pixels.push_back(x < 4 ? Rgb{255, 255, 255} : Rgb{0, 0, 0});
    }
  }
  const auto same = region_features(larger, 2, 2);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(same[i][2], patches[i][2]);
  EXPECT_THROW(region_features(half_bright(), 9, 1), std::logic_error);
  EXPECT_THROW(region_features(half_bright(), 0, 1), std::logic_error);
}

TEST(RegionCounter, TellsWhichUnitTakesWhichRegions) {
  // Unit 1 takes what is bright, unit 0 one dark patch; the other dark patch goes to no unit.
  RegionCounter counter(3);
  counter.add({1, 0, 1, -1}, region_features(half_bright(), 2, 2));
  const RegionTable table = counter.table();
  EXPECT_EQ(table.patches, 4);
  EXPECT_THAT(table.mean, ElementsAre(0.5, 0, 0.125, 0.5));
  EXPECT_THAT(table.deviation, ElementsAre(DoubleNear(0.5, 1e-15), 0, 0, DoubleNear(0.25, 1e-15)));
  ASSERT_EQ(table.units.size(), 4u);
  EXPECT_EQ(table.share(table.units[1]), 0.5);
  EXPECT_THAT(table.units[1].difference, ElementsAre(DoubleNear(1, 1e-15), 0, 0, 0));
  EXPECT_THAT(table.units[0].difference,
              ElementsAre(DoubleNear(-1, 1e-15), 0, 0, DoubleNear(-1, 1e-15)));
  EXPECT_EQ(table.units[2].patches, 0);
  EXPECT_EQ(table.units[3].patches, 1);
  EXPECT_EQ(table.units[3].mean[3], 0.75);
}

TEST(RegionCounter, AddsUpImages) {
  RegionCounter counter(1);
  EXPECT_EQ(counter.table().share({}), 0.0);
  for (int64_t image = 0; image < 3; ++image) {
    counter.add({0, 0}, {{0.1 * static_cast<double>(image), 0, 0, 0}, {1, 1, 1, 1}});
  }
  const RegionTable table = counter.table();
  EXPECT_EQ(table.patches, 6);
  EXPECT_NEAR(table.mean[0], 3.3 / 6, 1e-15);
  EXPECT_NEAR(table.deviation[1], 0.5, 1e-15);
  EXPECT_NEAR(table.units[0].difference[0], 0.0, 1e-15);
}

}  // namespace
}  // namespace shoal
