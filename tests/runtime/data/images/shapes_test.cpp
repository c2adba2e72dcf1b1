#include "runtime/data/images/shapes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace shoal {
namespace {

std::vector<Sample> read_all(const ShapesSource::Options& options, Split split) {
  const auto set = ShapesSource(options).open(split);
  std::vector<Sample> samples;
  for (int64_t i = 0; i < set->size(); ++i) samples.push_back(set->read(i, 0));
  return samples;
}

ShapesSource::Options small(int64_t samples) {
  ShapesSource::Options options;
  options.train.samples = samples;
  options.valid.samples = samples;
  return options;
}

bool equal(const std::vector<Sample>& a, const std::vector<Sample>& b) {
  bool result = a.size() == b.size();
  for (size_t i = 0; result && i < a.size(); ++i) {
    result = a[i].label == b[i].label && a[i].pixel_CHW == b[i].pixel_CHW;
  }
  return result;
}

TEST(Shapes, AreAFunctionOfSeedSplitAndIndex) {
  ShapesSource::Options options = small(20);
  const std::vector<Sample> train = read_all(options, Split::kTrain);
  EXPECT_TRUE(equal(train, read_all(options, Split::kTrain)));
  EXPECT_FALSE(equal(train, read_all(options, Split::kValid)));
  const Sample alone = ShapesSource(options).open(Split::kTrain)->read(13, 0);
  EXPECT_EQ(alone.pixel_CHW, train[13].pixel_CHW);
  options.seed = 1;
  EXPECT_FALSE(equal(train, read_all(options, Split::kTrain)));
}

TEST(Shapes, KeepTheirImagesWhenTheSetGrows) {
  const std::vector<Sample> few = read_all(small(10), Split::kValid);
  std::vector<Sample> many = read_all(small(30), Split::kValid);
  many.resize(10);
  EXPECT_TRUE(equal(few, many));
}

TEST(Shapes, HaveTheSizeAndClassesAskedFor) {
  ShapesSource::Options options = small(60);
  options.image_size = 17;
  options.classes = 23;
  const ShapesSource source(options);
  EXPECT_EQ(source.shape().image, (ImageShape{3, 17, 17}));
  EXPECT_EQ(source.shape().classes, 23);
  std::set<int64_t> labels;
  for (const Sample& sample : read_all(options, Split::kTrain)) {
    EXPECT_EQ(sample.shape, source.shape().image);
    EXPECT_EQ(static_cast<int64_t>(sample.pixel_CHW.size()), 3 * 17 * 17);
    labels.insert(sample.label);
  }
  EXPECT_EQ(labels.size(), 23u);
  EXPECT_EQ(*labels.rbegin(), 22);
}

TEST(Shapes, NameTheirClassesWhereKindsTellThemApart) {
  ShapesSource::Options options;
  options.classes = 3;
  EXPECT_EQ(ShapesSource(options).class_names(),
            (std::vector<std::string>{"disc", "square", "triangle"}));
  options.classes = 10;
  EXPECT_EQ(ShapesSource(options).class_names().at(9), "checkers");
  options.classes = 20;
  EXPECT_TRUE(ShapesSource(options).class_names().empty());
}

TEST(Shapes, ShowAShapeOnAGroundInEachImage) {
  ShapesSource::Options options = small(200);
  options.noise = 0.0;
  for (const Sample& sample : read_all(options, Split::kTrain)) {
    std::set<std::array<uint8_t, 3>> colours;
    int64_t covered = 0;
    const size_t plane = 32 * 32;
    const auto colour_at = [&](size_t i) {
      return std::array<uint8_t, 3>{sample.pixel_CHW[i], sample.pixel_CHW[plane + i],
                                    sample.pixel_CHW[2 * plane + i]};
    };
    const std::array<uint8_t, 3> ground = colour_at(0);
    for (size_t i = 0; i < plane; ++i) {
      colours.insert(colour_at(i));
      covered += colour_at(i) == ground ? 0 : 1;
    }
    EXPECT_EQ(colours.size(), 2u) << "class " << sample.label;
    EXPECT_GT(covered, 60) << "class " << sample.label;
    EXPECT_LT(covered, 900) << "class " << sample.label;
  }
}

TEST(Shapes, DifferByNoiseOfTheSizeAskedFor) {
  ShapesSource::Options options = small(5);
  options.noise = 0.0;
  const std::vector<Sample> clean = read_all(options, Split::kTrain);
  options.noise = 0.05;
  const std::vector<Sample> noisy = read_all(options, Split::kTrain);
  int largest = 0;
  for (size_t i = 0; i < clean.size(); ++i) {
    for (size_t j = 0; j < clean[i].pixel_CHW.size(); ++j) {
      largest = std::max(largest, std::abs(clean[i].pixel_CHW[j] - noisy[i].pixel_CHW[j]));
    }
  }
  EXPECT_GE(largest, 12);  // 0.05 * 255 = 12.75
  EXPECT_LE(largest, 13);
}

TEST(Shapes, TellTheirChannelStatistics) {
  const ShapesSource::Options options = small(2000);
  const ChannelStats stats = ShapesSource(options).image_transform()->stats;
  for (size_t channel = 0; channel < 3; ++channel) {
    double sum = 0, squares = 0;
    for (const Sample& sample : read_all(options, Split::kTrain)) {
      for (size_t i = channel * 1024; i < (channel + 1) * 1024; ++i) {
        const double value = sample.pixel_CHW[i] / 255.0;
        sum += value;
        squares += value * value;
      }
    }
    const double mean = sum / (2000.0 * 1024);
    EXPECT_NEAR(mean, stats.mean[channel], 0.02);
    EXPECT_NEAR(std::sqrt(squares / (2000.0 * 1024) - mean * mean), stats.std[channel], 0.02);
  }
}

/// Share of validation images whose nearest class mean is their class.
double accuracy_of_class_means(const ShapesSource::Options& options) {
  const auto classes = static_cast<size_t>(options.classes);
  std::vector<std::vector<double>> mean(classes, std::vector<double>(3072, 0.0));
  for (const Sample& sample : read_all(options, Split::kTrain)) {
    for (size_t i = 0; i < 3072; ++i) {
      mean[static_cast<size_t>(sample.label)][i] += sample.pixel_CHW[i] *
                                                    static_cast<double>(options.classes) /
                                                    static_cast<double>(options.train.samples);
    }
  }
  int64_t correct = 0;
  for (const Sample& sample : read_all(options, Split::kValid)) {
    size_t nearest = 0;
    double least = 1e300;
    for (size_t c = 0; c < classes; ++c) {
      double distance = 0;
      for (size_t i = 0; i < 3072; ++i) {
        const double difference = mean[c][i] - sample.pixel_CHW[i];
        distance += difference * difference;
      }
      if (distance < least) least = distance, nearest = c;
    }
    correct += nearest == static_cast<size_t>(sample.label) ? 1 : 0;
  }
  return static_cast<double>(correct) / static_cast<double>(options.valid.samples);
}

TEST(Shapes, AreNotToldApartByMeanImages) { EXPECT_LT(accuracy_of_class_means(small(1000)), 0.4); }

TEST(Shapes, AreRegisteredAsShapes) {
  EXPECT_EQ(Registry<DataSource>::create(Choice<DataSource>("shapes"), {})->shape().classes, 10);
}

}  // namespace
}  // namespace shoal
