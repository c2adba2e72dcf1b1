#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/data/source_of.h"
#include "tests/support/config_error.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Large enough for dashes, gaps and the ground between curves to be several pixels wide.
const std::vector<std::string> kLargePathfinder{"image_size=128", "dash=8", "gap=4"};

std::shared_ptr<DataSource> pathfinder(const std::vector<std::string>& changes = {}) {
  return testing::source_of("{source: pathfinder}", changes);
}

std::vector<Sample> read_images(std::vector<std::string> keys, Split split, int64_t num_samples) {
  for (const char* name : {"train", "valid"}) {
    keys.push_back(fmt::format("{}.samples={}", name, num_samples));
  }
  const auto set = pathfinder(keys)->open(split);
  std::vector<Sample> samples;
  for (int64_t i = 0; i < set->size(); ++i) samples.push_back(set->read(i, 0));
  return samples;
}

/// A black and white image.
struct Mask {
  int64_t side;
  std::vector<bool> is_on;

  bool at(int64_t row, int64_t column) const {
    return row >= 0 && row < side && column >= 0 && column < side &&
           is_on[static_cast<size_t>(row * side + column)];
  }
  /// All pixels within `radius` of one that is on, or with `all` those within which all are.
  Mask grown(double radius, bool all) const {
    Mask result{side, std::vector<bool>(is_on.size())};
    const auto reach = static_cast<int64_t>(radius);
    for (int64_t i = 0; i < side * side; ++i) {
      bool value = all;
      for (int64_t y = -reach; y <= reach && value == all; ++y) {
        for (int64_t x = -reach; x <= reach && value == all; ++x) {
          if (static_cast<double>(x * x + y * y) > radius * radius) continue;
          const bool other = at(i / side + y, i % side + x);
          value = all ? value && other : value || other;
        }
      }
      result.is_on[static_cast<size_t>(i)] = value;
    }
    return result;
  }
  /// The number of the connected part that each pixel is in; 0: none.
  std::vector<int64_t> parts() const {
    std::vector<int64_t> part(is_on.size(), 0);
    int64_t found = 0;
    for (size_t start = 0; start < is_on.size(); ++start) {
      if (!is_on[start] || part[start] != 0) continue;
      part[start] = ++found;
      for (std::vector<size_t> todo{start}; !todo.empty();) {
        const auto pixel = static_cast<int64_t>(todo.back());
        todo.pop_back();
        for (const auto& [y, x] : {std::pair{-1, 0}, {1, 0}, {0, -1}, {0, 1}}) {
          if (!at(pixel / side + y, pixel % side + x)) continue;
          const auto next = static_cast<size_t>(pixel + y * side + x);
          if (part[next] == 0) part[next] = found, todo.push_back(next);
        }
      }
    }
    return part;
  }
};

Mask mask_of(const Sample& sample) {
  Mask mask{sample.shape.height, {}};
  for (const uint8_t value : sample.pixel_CHW) mask.is_on.push_back(value >= 128);
  return mask;
}

/// The parts of the image's curves, gaps closed, that hold something as thick as a dot.
std::vector<int64_t> parts_with_dots(const Sample& sample) {
  const Mask mask = mask_of(sample);
  const Mask dots = mask.grown(4.0, /*all=*/true);  // of radius 6; dashes have 2
  const std::vector<int64_t> part = mask.grown(2.6, /*all=*/false).parts();
  std::vector<int64_t> found;
  for (size_t i = 0; i < part.size(); ++i) {
    if (dots.is_on[i]) found.push_back(part[i]);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

/// Where the dots are: the middles of the thick parts.
std::vector<std::pair<double, double>> dots_of(const Sample& sample) {
  const Mask dots = mask_of(sample).grown(5.0, /*all=*/true);
  const auto side = static_cast<size_t>(dots.side);
  const std::vector<int64_t> part = dots.parts();
  std::vector<std::pair<double, double>> middle;
  for (int64_t number = 1; number <= *std::max_element(part.begin(), part.end()); ++number) {
    double x = 0, y = 0, count = 0;
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] != number) continue;
      x += static_cast<double>(i % side) + 0.5, y += static_cast<double>(i / side) + 0.5, ++count;
    }
    middle.emplace_back(x / count, y / count);
  }
  return middle;
}

TEST(Pathfinder, DotsOfLabel1AndNoOthersAreConnected) {
  for (const Sample& sample : read_images(kLargePathfinder, Split::kTrain, 100)) {
    EXPECT_EQ(dots_of(sample).size(), 2u);
    EXPECT_EQ(parts_with_dots(sample).size(), sample.label == 1 ? 1u : 2u);
  }
}

/// The share of samples whose label the best threshold on a number gives, fitted to these samples.
double share_by_threshold(std::vector<std::pair<double, int64_t>> number_label) {
  std::sort(number_label.begin(), number_label.end());
  const auto count = static_cast<int64_t>(number_label.size());
  int64_t ones_below = 0, most = 0;
  for (int64_t below = 1; below <= count; ++below) {
    ones_below += number_label[static_cast<size_t>(below - 1)].second;
    const int64_t right = below - ones_below + count / 2 - ones_below;
    most = std::max({most, right, count - right});
  }
  return static_cast<double>(most) / static_cast<double>(count);
}

// Otherwise the dots alone would tell the label.
TEST(Pathfinder, DotsOfBothLabelsLieAlike) {
  // One try in fifteen finds room.
  const std::vector<std::string> tight{"image_size=64", "dash=8",        "gap=4",
                                       "length=3",      "distractors=1", "distractor_length=2"};
  for (const std::vector<std::string>& keys : {kLargePathfinder, tight}) {
    std::vector<std::pair<double, int64_t>> distance, from_centre;
    for (const Sample& sample : read_images(keys, Split::kValid, 2000)) {
      const auto dots = dots_of(sample);
      ASSERT_EQ(dots.size(), 2u);
      const auto [x0, y0] = dots[0];
      const auto [x1, y1] = dots[1];
      distance.emplace_back(std::hypot(x0 - x1, y0 - y1), sample.label);
      const auto side = static_cast<double>(sample.shape.width);
      from_centre.emplace_back(std::hypot(x0 + x1 - side, y0 + y1 - side), sample.label);
    }
    EXPECT_LT(share_by_threshold(distance), 0.55);
    EXPECT_LT(share_by_threshold(from_centre), 0.55);
  }
}

TEST(Pathfinder, BothLabelsHaveAsMuchInk) {
  double ink[2] = {0, 0};
  for (const Sample& sample : read_images({}, Split::kTrain, 2000)) {
    for (const uint8_t value : sample.pixel_CHW) ink[sample.label] += value / 255.0;
  }
  EXPECT_NEAR(ink[0] / ink[1], 1.0, 0.02);
}

TEST(Pathfinder, AreAFunctionOfSeedSplitAndIndex) {
  const auto pixels = [](Split split, int64_t index, const std::vector<std::string>& changes = {}) {
    return pathfinder(changes)->open(split)->read(index, 0).pixel_CHW;
  };
  const std::vector<uint8_t> image = pixels(Split::kTrain, 13);
  EXPECT_EQ(image, pixels(Split::kTrain, 13));
  EXPECT_NE(image, pixels(Split::kTrain, 12));
  EXPECT_NE(image, pixels(Split::kValid, 13));
  EXPECT_NE(image, pixels(Split::kTrain, 13, {"seed=1"}));
}

TEST(Pathfinder, HasBalancedLabelsAndTellsItsStatistics) {
  const auto source = pathfinder();
  EXPECT_EQ(source->shape().text(), "images of 1 x 32 x 32 and labels of 2 classes");
  const ChannelStats stats = source->image_transform()->stats;
  double sum = 0, squares = 0;
  int64_t ones = 0;
  for (const Sample& sample : read_images({}, Split::kTrain, 2000)) {
    ones += sample.label;
    for (const uint8_t value : sample.pixel_CHW) {
      sum += value / 255.0;
      squares += value / 255.0 * value / 255.0;
    }
  }
  EXPECT_EQ(ones, 1000);
  const double count = 2000.0 * 32 * 32, mean = sum / count;
  EXPECT_NEAR(mean, stats.mean[0], 0.01);
  EXPECT_NEAR(std::sqrt(squares / count - mean * mean), stats.std[0], 0.01);
}

TEST(Pathfinder, RefusesCurvesWithoutRoom) {
  const auto mistakes = [](const std::string& keys) {
    return testing::mistakes_of([&] { testing::source_of("{source: pathfinder" + keys + "}"); });
  };
  EXPECT_THAT(mistakes(", image_size: 16"),
              ElementsAre(HasSubstr("image_size: the curves hardly find room")));
  EXPECT_THAT(mistakes(", length: 40"), ElementsAre(HasSubstr("image_size: ")));
  // There is room for so many, but a try takes hours.
  EXPECT_THAT(mistakes(", image_size: 1024, dash: 1, gap: 0.5, turn: 10, distractors: 1000, "
                       "distractor_length: 100"),
              ElementsAre(HasSubstr("image_size: the curves hardly find room, or are too many")));
  EXPECT_THAT(mistakes(""), ElementsAre());
  EXPECT_THAT(mistakes(", image_size: 64, length: 14, distractors: 6, distractor_length: 4"),
              ElementsAre());
}

}  // namespace
}  // namespace shoal
