#include "runtime/data/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

constexpr ImageShape kSmall{2, 3, 4};
const ChannelStats kIdentity{{0.0, 0.0}, {1.0 / 255, 1.0 / 255}};  // values are the bytes

/// 1, 2, 3, ...: no pixel looks like the border.
std::vector<uint8_t> counting_pixels() {
  std::vector<uint8_t> pixels(static_cast<size_t>(kSmall.bytes()));
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i + 1);
  return pixels;
}

/// The plain definition: crop from the bordered image, flip, normalise.
std::vector<double> reference(const std::vector<uint8_t>& pixels, const AugmentDraw& draw,
                              const ChannelStats& stats) {
  std::vector<double> values;
  for (int64_t c = 0; c < kSmall.channels; ++c) {
    for (int64_t y = 0; y < kSmall.height; ++y) {
      for (int64_t x = 0; x < kSmall.width; ++x) {
        const int64_t from_y = y + draw.down;
        const int64_t from_x = (draw.flip ? kSmall.width - 1 - x : x) + draw.right;
        const bool is_inside =
            from_y >= 0 && from_y < kSmall.height && from_x >= 0 && from_x < kSmall.width;
        const int64_t at = (c * kSmall.height + from_y) * kSmall.width + from_x;
        const double byte = is_inside ? pixels[static_cast<size_t>(at)] : 0.0;
        const auto channel = static_cast<size_t>(c);
        values.push_back((byte / 255.0 - stats.mean[channel]) / stats.std[channel]);
      }
    }
  }
  return values;
}

template <class T>
std::vector<T> write(const AugmentDraw& draw, const ChannelStats& stats) {
  std::vector<T> values(static_cast<size_t>(kSmall.bytes()));
  PixelWriter(kSmall, stats).write<T>(counting_pixels(), draw, values);
  return values;
}

TEST(PixelWriter, EqualsThePlainDefinitionForEveryShiftAndFlip) {
  const ChannelStats stats{{0.3, 0.5}, {0.2, 0.25}};
  for (int64_t down = -5; down <= 5; ++down) {
    for (int64_t right = -6; right <= 6; ++right) {
      for (const bool flip : {false, true}) {
        const AugmentDraw draw{flip, down, right};
        EXPECT_EQ(write<double>(draw, stats), reference(counting_pixels(), draw, stats));
      }
    }
  }
}

TEST(Shift, DoesWhatTheWriterDoes) {
  for (int64_t down = -5; down <= 5; ++down) {
    for (int64_t right = -6; right <= 6; ++right) {
      AugmentDraw draw{true, down, right};
      const std::vector<double> expected = write<double>(draw, kIdentity);
      EditedImage image{kSmall, counting_pixels()};
      shift(image, draw);
      EXPECT_EQ(draw.down, 0);
      EXPECT_EQ(draw.right, 0);
      std::vector<double> values(image.pixel_CHW.size());
      PixelWriter(kSmall, kIdentity).write<double>(image.pixel_CHW, draw, values);
      EXPECT_EQ(values, expected) << down << ", " << right;
    }
  }
}

TEST(PixelWriter, RoundsTheSameValuesToFloat) {
  const ChannelStats stats{{0.3, 0.5}, {0.2, 0.25}};
  const AugmentDraw draw{true, 1, -1};
  const std::vector<double> exact = write<double>(draw, stats);
  const std::vector<float> rounded = write<float>(draw, stats);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_EQ(rounded[i], static_cast<float>(exact[i]));
}

TEST(PixelWriter, KeepsTheImageWithoutADraw) {
  const std::vector<double> values = write<double>({}, kIdentity);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], static_cast<double>(i + 1), 1e-12);
}

TEST(DrawAugment, StaysWithinThePaddingAndReachesItsEnds) {
  const AugmentOptions options{.crop_padding = 2, .flip = true};
  std::set<std::pair<int64_t, int64_t>> shifts;
  int64_t flips = 0;
  for (int64_t position = 0; position < 4000; ++position) {
    const AugmentDraw draw = draw_augment(options, 1, position, 0);
    shifts.insert({draw.down, draw.right});
    EXPECT_LE(std::abs(draw.down), 2);
    EXPECT_LE(std::abs(draw.right), 2);
    flips += draw.flip ? 1 : 0;
  }
  EXPECT_EQ(shifts.size(), 25u);
  EXPECT_NEAR(static_cast<double>(flips), 2000.0,
              150.0);  // more than 4.5 standard deviations
}

TEST(DrawAugment, DoesNothingWhenOff) {
  for (int64_t position = 0; position < 100; ++position) {
    const AugmentDraw draw = draw_augment({}, 1, position, 0);
    EXPECT_FALSE(draw.flip);
    EXPECT_EQ(draw.down, 0);
    EXPECT_EQ(draw.right, 0);
  }
}

TEST(DrawAugment, DependsOnSeedPositionAndViewAlone) {
  const AugmentOptions options{.crop_padding = 100, .flip = false};
  const auto shift = [&](uint64_t seed, int64_t position, int64_t view) {
    const AugmentDraw draw = draw_augment(options, seed, position, view);
    return std::pair{draw.down, draw.right};
  };
  EXPECT_EQ(shift(1, 5, 0), shift(1, 5, 0));
  EXPECT_NE(shift(1, 5, 0), shift(2, 5, 0));
  EXPECT_NE(shift(1, 5, 0), shift(1, 6, 0));
  EXPECT_NE(shift(1, 5, 0), shift(1, 5, 1));
}

TEST(DrawAugment, KeepsTheFlipsWhenThePaddingChanges) {
  for (int64_t position = 0; position < 50; ++position) {
    EXPECT_EQ(draw_augment({.crop_padding = 0, .flip = true}, 1, position, 0).flip,
              draw_augment({.crop_padding = 4, .flip = true}, 1, position, 0).flip);
  }
}

TEST(ImageTransform, PrefersTheRecipe) {
  ImageOptions options;
  options.normalise.mean = {0.1, 0.2};
  const ChannelStats stats = image_transform({2, 4, 4}, options, {{0.5, 0.5}, {0.3, 0.4}}).stats;
  EXPECT_EQ(stats.mean, (std::vector<double>{0.1, 0.2}));
  EXPECT_EQ(stats.std, (std::vector<double>{0.3, 0.4}));
}

TEST(ImageTransform, RefusesAnotherNumberOfChannels) {
  ImageOptions options;
  options.normalise.std = {0.1, 0.2};
  try {
    image_transform({3, 4, 4}, options, {{0.5, 0.5, 0.5}, {0.3, 0.3, 0.3}});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.normalise.std: 2 values for images of 3 channels"));
  }
}

TEST(ImageTransform, RefusesTransformsOfColoursWithoutColours) {
  ImageOptions options;
  options.augment.transforms = {{"solarise", {}}, {"grey", {}}};
  EXPECT_NO_THROW(image_transform({3, 4, 4}, options, {{0, 0, 0}, {1, 1, 1}}));
  try {
    image_transform({1, 4, 4}, options, {{0}, {1}});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.augment.transforms[1]: grey needs images of 3"));
  }
}

}  // namespace
}  // namespace shoal
