#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/images/resized_crop.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/registry.h"
#include "tests/support/config_error.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

const ScalarDraws kDraws({1, Purpose::kCrop, 0, 0});
constexpr ImageShape kWide{3, 375, 500}, kTall{3, 500, 375};

TEST(CenterCrop, ResizesTheShorterSideAsTorchvision) {
  const ResizedCrop<false> crop({.resize = 256}, {.image_size = 224});
  const CropPlan wide = crop.plan(kWide, kDraws, 0);
  EXPECT_EQ((std::pair{wide.resized_height, wide.resized_width}),
            (std::pair<int64_t, int64_t>{256, 341}));
  EXPECT_EQ((std::pair{wide.square_top, wide.square_left}), (std::pair<int64_t, int64_t>{16, 58}));
  const CropPlan tall = crop.plan(kTall, kDraws, 7);
  EXPECT_EQ((std::pair{tall.square_top, tall.square_left}), (std::pair<int64_t, int64_t>{58, 16}));
  EXPECT_EQ((std::pair{tall.height, tall.width}), (std::pair<int64_t, int64_t>{500, 375}));
}

TEST(CenterCrop, KeepsTheSizeOrEnlargesToTheSquare) {
  const ResizedCrop<false> crop({}, {.image_size = 64});
  const CropPlan plan = crop.plan(kWide, kDraws, 0);
  EXPECT_EQ(plan.resized_height, 375);
  EXPECT_EQ(plan.square_left, 218);
  const CropPlan small = crop.plan({3, 32, 48}, kDraws, 0);
  EXPECT_EQ(small.resized_height, 64);
  EXPECT_EQ(small.resized_width, 96);
  EXPECT_EQ(small.square_left, 16);
}

TEST(RandomCrop, ReachesEveryPlaceAndNoOther) {
  const ResizedCrop<true> crop({}, {.image_size = 30});
  std::set<int64_t> tops, lefts;
  for (uint64_t id = 0; id < 500; ++id) {
    const CropPlan plan = crop.plan({3, 32, 34}, kDraws, id);
    tops.insert(plan.square_top);
    lefts.insert(plan.square_left);
  }
  EXPECT_EQ(tops, (std::set<int64_t>{0, 1, 2}));
  EXPECT_EQ(lefts, (std::set<int64_t>{0, 1, 2, 3, 4}));
}

TEST(ResizedCrop, RefusesToResizeBelowTheSquare) {
  try {
    ResizedCrop<true>({.resize = 200}, {.image_size = 224, .key = "data.train.crop"});
    FAIL() << "taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("data.train.crop.resize: 200 is below data.image_size, 224"));
  }
}

struct CropKeys {
  Choice<Crop> crop;
  static constexpr auto fields() { return std::tuple{field("crop", &CropKeys::crop, "")}; }
};

std::shared_ptr<Crop> random_resized_crop(const std::string& keys) {
  const auto loaded =
      config::load_options_text<CropKeys>("crop: {name: random_resized, " + keys + "}", "r.yaml");
  return Registry<Crop>::create(loaded.options.crop, {.image_size = 8});
}

TEST(RandomResizedCrop, DrawsAreasAndShapesEvenly) {
  const auto crop = random_resized_crop("scale: [0.2, 0.4], ratio: [0.5, 2.0]");
  double area = 0.0, log_ratio = 0.0;
  constexpr int kImages = 4000;
  for (uint64_t id = 0; id < kImages; ++id) {
    const CropPlan plan = crop->plan({3, 1000, 1000}, kDraws, id);
    const double share = static_cast<double>(plan.height * plan.width) / 1e6;
    const double ratio = static_cast<double>(plan.width) / static_cast<double>(plan.height);
    EXPECT_GT(share, 0.199);
    EXPECT_LT(share, 0.401);
    EXPECT_GT(ratio, 0.497);
    EXPECT_LT(ratio, 2.01);
    EXPECT_LE(plan.top + plan.height, 1000);
    EXPECT_LE(plan.left + plan.width, 1000);
    EXPECT_EQ(plan.resized_height, 8);
    area += share / kImages;
    log_ratio += std::log(ratio) / kImages;
  }
  // Deviations of a mean of 4000: 0.0009 and 0.006.
  EXPECT_NEAR(area, 0.3, 0.004);
  EXPECT_NEAR(log_ratio, 0.0, 0.025);
}

TEST(RandomResizedCrop, TakesTheMiddleWhereNothingFits) {
  const auto crop = random_resized_crop("");
  const CropPlan wide = crop->plan({3, 10, 1000}, kDraws, 3);
  EXPECT_EQ(wide.height, 10);
  EXPECT_EQ(wide.width, 13);
  EXPECT_EQ(wide.left, 493);
  const CropPlan tall = crop->plan({3, 1000, 10}, kDraws, 3);
  EXPECT_EQ(tall.height, 13);
  EXPECT_EQ(tall.width, 10);
  const CropPlan thin = crop->plan({3, 1, 1000}, kDraws, 3);
  EXPECT_EQ(thin.height, 1);
  EXPECT_EQ(thin.width, 1);
}

TEST(RandomResizedCrop, RefusesWhatIsNoPair) {
  const std::vector<std::string> mistakes =
      testing::mistakes_of([] { random_resized_crop("scale: [0.5, 0.4], ratio: [1.0]"); });
  EXPECT_THAT(mistakes, ::testing::ElementsAre(HasSubstr("scale"), HasSubstr("ratio")));
}

}  // namespace
}  // namespace shoal
