#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/data/transforms/jitter.h"
#include "runtime/data/transforms/pixel_operation.h"
#include "tests/runtime/data/transforms/chain_fixture.h"

namespace shoal {
namespace {

using testing::chain_of;
using testing::test_image;
using testing::transformed;
using Bytes = std::vector<uint8_t>;

/// Orders images; GCC 12 warns of the order that std::vector has.
struct ByBytes {
  bool operator()(const Bytes& a, const Bytes& b) const {
    return std::ranges::lexicographical_compare(a, b);
  }
};

Bytes after(PixelOperation operation, double argument, EditedImage image) {
  apply(operation, argument, Interpolation::kBilinear, image);
  return image.pixel_CHW;
}

TEST(JitterColours, DrawsEachFactorFromItsRangeAndEveryOrder) {
  const JitterStrengths strengths{0.4, 0.5, 0.6, 0.1};
  const EditedImage image = test_image({3, 4, 5});
  std::set<std::array<int, 4>> orders;
  for (int64_t position = 0; position < 300; ++position) {
    const TransformDraws draws(7, {1, position, 0});
    EditedImage jittered = image;
    jitter_colours(strengths, draws, 0, jittered);
    std::array<int, 4> order{0, 1, 2, 3};
    std::vector<std::array<int, 4>> fitting;
    do {
      EditedImage by_hand = image;
      for (const int i : order) {
        constexpr std::array kOperations{PixelOperation::kBrightness, PixelOperation::kContrast,
                                         PixelOperation::kColour, PixelOperation::kHue};
        constexpr std::array kLeast{0.6, 0.5, 0.4, -0.1}, kMost{1.4, 1.5, 1.6, 0.1};
        const auto at = static_cast<size_t>(i);
        const double drawn = draws.between(static_cast<uint32_t>(1 + i), kLeast[at], kMost[at]);
        apply(kOperations[at], drawn, Interpolation::kNearest, by_hand);
      }
      if (by_hand.pixel_CHW == jittered.pixel_CHW) fitting.push_back(order);
    } while (std::next_permutation(order.begin(), order.end()));
    ASSERT_FALSE(fitting.empty()) << position;
    if (fitting.size() == 1) orders.insert(fitting.front());
  }
  EXPECT_EQ(orders.size(), 24u);
}

TEST(JitterColours, LeavesAloneWhatHasNoStrength) {
  const EditedImage image = test_image({3, 4, 5});
  EXPECT_EQ(transformed(chain_of("[{name: colour_jitter}]"), image, {}), image.pixel_CHW);
  // A factor may not become negative.
  const TransformChain dark = chain_of("[{name: colour_jitter, brightness: 3}]");
  bool was_black = false;
  for (int64_t position = 0; position < 200; ++position) {
    const Bytes bytes = transformed(dark, image, {1, position, 0});
    was_black |= std::ranges::max(bytes) < 30;
  }
  EXPECT_TRUE(was_black);
}

TEST(Blur, DrawsTheDeviationFromItsRange) {
  EditedImage image{{1, 21, 21}, Bytes(441, 0)};
  image.pixel_CHW[220] = 255;
  const TransformChain chain = chain_of("[{name: blur, sigma: [0.5, 1.5]}]", 1);
  const auto peak = [&](double sigma) { return after(PixelOperation::kBlur, sigma, image)[220]; };
  std::set<uint8_t> peaks;
  for (int64_t position = 0; position < 200; ++position) {
    peaks.insert(transformed(chain, image, {1, position, 0})[220]);
  }
  EXPECT_LE(*peaks.rbegin(), peak(0.5));
  EXPECT_GE(*peaks.begin(), peak(1.5));
  EXPECT_GT(peaks.size(), 40u);
}

/// Where an erased image differs from 255 everywhere.
struct Erased {
  int64_t top = 1000, left = 1000, bottom = 0, right = 0, count = 0;
};

Erased erased_of(const Bytes& bytes, ImageShape shape) {
  Erased found;
  for (int64_t i = 0; i < shape.pixels(); ++i) {
    if (bytes[static_cast<size_t>(i)] == 255) continue;
    const int64_t y = i / shape.width, x = i % shape.width;
    found.top = std::min(found.top, y);
    found.left = std::min(found.left, x);
    found.bottom = std::max(found.bottom, y + 1);
    found.right = std::max(found.right, x + 1);
    ++found.count;
  }
  return found;
}

TEST(RandomErasing, OverwritesARectangleOfTheAreaAndShape) {
  const ImageShape shape{3, 50, 60};
  const EditedImage image{shape, Bytes(9000, 255)};
  const TransformChain chain =
      chain_of("[{name: random_erasing, area: [0.1, 0.2], ratio: [0.5, 2]}]");
  std::set<int64_t> tops, areas;
  for (int64_t position = 0; position < 300; ++position) {
    const Bytes bytes = transformed(chain, image, {1, position, 0});
    const Erased erased = erased_of(bytes, shape);
    const int64_t height = erased.bottom - erased.top, width = erased.right - erased.left;
    EXPECT_EQ(erased.count, height * width);                      // nothing but the rectangle
    EXPECT_EQ(std::ranges::count(bytes, 128), 3 * erased.count);  // 0.5, the mean, in all channels
    EXPECT_NEAR(static_cast<double>(erased.count) / 3000.0, 0.15, 0.06);
    const double ratio = static_cast<double>(height) / static_cast<double>(width);
    EXPECT_GT(ratio, 0.47);
    EXPECT_LT(ratio, 2.13);
    tops.insert(erased.top);
    areas.insert(erased.count);
  }
  EXPECT_GT(tops.size(), 20u);
  EXPECT_GT(areas.size(), 50u);
}

TEST(RandomErasing, FillsWithAColourOrNoise) {
  const ImageShape shape{3, 20, 20};
  const EditedImage image{shape, Bytes(1200, 255)};
  const auto values = [&](const std::string& fill, int64_t position) {
    const TransformChain chain =
        chain_of("[{name: random_erasing, area: [0.2, 0.4], fill: " + fill + "}]");
    Bytes bytes = transformed(chain, image, {1, position, 0});
    std::erase(bytes, 255);
    return std::set<uint8_t>(bytes.begin(), bytes.end());
  };
  std::set<std::set<uint8_t>> colours;
  for (int64_t position = 0; position < 20; ++position) {
    const std::set<uint8_t> colour = values("colour", position);
    EXPECT_LE(colour.size(), 3u);
    colours.insert(colour);
    EXPECT_GT(values("noise", position).size(), 80u);
  }
  EXPECT_GT(colours.size(), 15u);
}

/// Which operations, at these arguments, may have made the bytes.
std::set<PixelOperation> makers(const Bytes& bytes, const EditedImage& image,
                                const std::map<PixelOperation, std::vector<double>>& arguments) {
  std::set<PixelOperation> found;
  for (const auto& [operation, values] : arguments) {
    for (const double value : values) {
      if (after(operation, value, image) == bytes) found.insert(operation);
    }
  }
  return found;
}

TEST(RandAugment, DoesEachOfItsOperations) {
  const EditedImage image = test_image({3, 24, 20});
  using Op = PixelOperation;
  const std::map<Op, std::vector<double>> arguments{{Op::kAutoContrast, {0}},
                                                    {Op::kEqualise, {0}},
                                                    {Op::kInvert, {0}},
                                                    {Op::kRotate, {15, -15}},
                                                    {Op::kPosterise, {2}},
                                                    {Op::kSolarise, {128}},
                                                    {Op::kSolariseAdd, {55}},
                                                    {Op::kColour, {1.0}},
                                                    {Op::kContrast, {1.0}},
                                                    {Op::kBrightness, {1.0}},
                                                    {Op::kSharpness, {1.0}},
                                                    {Op::kShearX, {0.15, -0.15}},
                                                    {Op::kShearY, {0.15, -0.15}},
                                                    {Op::kTranslateX, {0.225, -0.225}},
                                                    {Op::kTranslateY, {0.225, -0.225}}};
  const TransformChain chain =
      chain_of("[{name: rand_augment, num_ops: 1, magnitude: 5, op_probability: 1}]");
  std::set<Op> seen;
  for (int64_t position = 0; position < 300; ++position) {
    const Bytes bytes = transformed(chain, image, {1, position, 0});
    const std::set<Op> possible = makers(bytes, image, arguments);
    EXPECT_FALSE(possible.empty()) << position;
    seen.insert(possible.begin(), possible.end());
  }
  EXPECT_EQ(seen.size(), arguments.size());
}

TEST(RandAugment, DoesNothingWithoutOperationsOrProbability) {
  const EditedImage image = test_image({3, 12, 10});
  for (const char* options : {"num_ops: 0", "op_probability: 0"}) {
    const TransformChain chain = chain_of(std::string("[{name: rand_augment, ") + options + "}]");
    for (int64_t position = 0; position < 50; ++position) {
      EXPECT_EQ(transformed(chain, image, {1, position, 0}), image.pixel_CHW);
    }
  }
}

TEST(RandAugment, DrawsAMagnitudeForEachOperation) {
  const EditedImage image = test_image({3, 12, 10});
  const auto results = [&](const std::string& options) {
    const TransformChain chain =
        chain_of("[{name: rand_augment, num_ops: 1, op_probability: 1" + options + "}]");
    std::set<Bytes, ByBytes> found;
    for (int64_t position = 0; position < 400; ++position) {
      found.insert(transformed(chain, image, {1, position, 0}));
    }
    return found.size();
  };
  EXPECT_LE(results(""), 20u);
  EXPECT_GT(results(", magnitude_std: 2"), 60u);
}

TEST(AutoAugment, DrawsManyPairsAndActsOnMostImages) {
  const EditedImage image = test_image({3, 24, 20});
  const TransformChain chain = chain_of("[{name: auto_augment}]");
  std::map<Bytes, int64_t, ByBytes> results;
  for (int64_t position = 0; position < 1000; ++position) {
    ++results[transformed(chain, image, {1, position, 0})];
  }
  EXPECT_GT(results.size(), 30u);
  // Neither operation of a pair is done with a mean probability of 0.150, equalise alone of 0.243.
  EXPECT_NEAR(static_cast<double>(results[image.pixel_CHW]), 150.0, 51.0);
  EXPECT_GT(results[after(PixelOperation::kEqualise, 0, image)], 150);
}

TEST(ThreeAugment, ChoosesOneOfThree) {
  const EditedImage image = test_image({3, 12, 10});
  const Bytes grey = after(PixelOperation::kGrey, 0, image);
  const Bytes solarised = after(PixelOperation::kSolarise, 128, image);
  const TransformChain chain = chain_of("[{name: three_augment, jitter: 0}]");
  int64_t num_grey = 0, num_solarised = 0;
  std::set<Bytes, ByBytes> others;
  for (int64_t position = 0; position < 600; ++position) {
    const Bytes bytes = transformed(chain, image, {1, position, 0});
    num_grey += bytes == grey ? 1 : 0;
    num_solarised += bytes == solarised ? 1 : 0;
    if (bytes != grey && bytes != solarised) others.insert(bytes);
  }
  EXPECT_NEAR(static_cast<double>(num_grey), 200.0, 52.0);  // 4.5 standard deviations
  EXPECT_NEAR(static_cast<double>(num_solarised), 200.0, 52.0);
  EXPECT_GT(others.size(), 100u);  // blurs of random width
}

}  // namespace
}  // namespace shoal
