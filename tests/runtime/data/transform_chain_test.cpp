#include "runtime/data/transform_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/runtime/data/transforms/chain_fixture.h"
#include "tests/support/config_error.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::chain_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::test_image;
using testing::transformed;
using testing::transforms_of;

const std::vector<std::string>& all_transforms() {
  static const std::vector<std::string> names{
      "{name: colour_jitter, brightness: 0.4, contrast: 0.4, saturation: 0.2, hue: 0.1}",
      "{name: grey}",
      "{name: blur}",
      "{name: solarise}",
      "{name: random_erasing, fill: noise}",
      "{name: rand_augment, magnitude_std: 0.5, interpolation: random}",
      "{name: auto_augment}",
      "{name: three_augment}"};
  return names;
}

std::string listed(const std::vector<std::string>& entries) {
  std::string list;
  for (const std::string& entry : entries) list += (list.empty() ? "[" : ", ") + entry;
  return list + "]";
}

/// With a probability.
std::string listed(std::string entry, const std::string& probability) {
  entry.insert(entry.size() - 1, ", probability: " + probability);
  return listed({entry});
}

TEST(TransformChain, TestsKnowEveryTransform) {
  std::vector<std::string> names;
  for (const TransformOptions& entry : transforms_of(listed(all_transforms()))) {
    names.push_back(entry.transform.name());
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(members_of<PixelTransform>().names()));
}

TEST(TransformChain, DependsOnSeedPositionAndViewAndNotOnTheOrderOfCalls) {
  const EditedImage image = test_image({3, 9, 8});
  std::vector<std::string> jittered = all_transforms();
  for (int i = 0; i < 2; ++i) {
    const TransformChain chain = chain_of(listed(jittered));
    std::vector<std::vector<uint8_t>> forward;
    for (int64_t position = 0; position < 30; ++position) {
      for (int64_t view = 0; view < 2; ++view) {
        forward.push_back(transformed(chain, image, {1, position, view}));
      }
    }
    for (int64_t position = 29; position >= 0; --position) {
      for (int64_t view = 1; view >= 0; --view) {
        EXPECT_EQ(transformed(chain_of(listed(jittered)), image, {1, position, view}),
                  forward[static_cast<size_t>(2 * position + view)]);
      }
    }
    std::set<std::string> distinct;
    for (const auto& image : forward) distinct.emplace(image.begin(), image.end());
    EXPECT_GT(distinct.size(), 45u);
    EXPECT_NE(transformed(chain, image, {2, 5, 0}), forward[10]);
    jittered = {jittered.front()};
  }
}

TEST(TransformChain, ActsWithTheProbabilityOfTheView) {
  const EditedImage image = test_image({3, 6, 7});
  for (const std::string& entry : all_transforms()) {
    const TransformChain never = chain_of(listed(entry, "0"));
    for (int64_t position = 0; position < 20; ++position) {
      EXPECT_EQ(transformed(never, image, {1, position, 0}), image.pixel_CHW) << entry;
    }
  }
  const TransformChain always = chain_of("[{name: grey}]");
  const TransformChain some = chain_of("[{name: grey, probability: {views: [0.3, 1, 0]}}]");
  int64_t acted = 0;
  for (int64_t position = 0; position < 1000; ++position) {
    EXPECT_NE(transformed(always, image, {1, position, 0}), image.pixel_CHW);
    EXPECT_NE(transformed(some, image, {1, position, 1}), image.pixel_CHW);
    EXPECT_EQ(transformed(some, image, {1, position, 2}), image.pixel_CHW);
    acted += transformed(some, image, {1, position, 0}) != image.pixel_CHW ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(acted), 300.0, 65.0);  // 4.5 standard deviations
}

TEST(TransformChain, TakesImagesOfOnePixelAndOddSizes) {
  for (const std::string& entry : all_transforms()) {
    const TransformChain chain = chain_of(listed({entry}));
    for (const ImageShape shape :
         {ImageShape{3, 1, 1}, {3, 1, 7}, {3, 5, 1}, {3, 2, 3}, {3, 17, 13}}) {
      for (int64_t position = 0; position < 40; ++position) {
        const EditedImage image = test_image(shape);
        EXPECT_EQ(transformed(chain, image, {3, position, 0}).size(), image.pixel_CHW.size());
      }
    }
  }
}

TEST(TransformChain, GoesInTheListedOrder) {
  const EditedImage image = test_image({3, 6, 7});
  const std::vector<uint8_t> grey_first =
      transformed(chain_of("[{name: grey}, {name: solarise}]"), image, {});
  EditedImage by_hand = image;
  chain_of("[{name: grey}]").apply(by_hand, {});
  chain_of("[{name: solarise}]").apply(by_hand, {});
  EXPECT_EQ(grey_first, by_hand.pixel_CHW);
  EXPECT_NE(grey_first, transformed(chain_of("[{name: solarise}, {name: grey}]"), image, {}));
}

TEST(TransformChain, KeepsTheDrawsOfATransformWhenOthersComeBeforeIt) {
  const EditedImage image = test_image({3, 6, 7});
  const TransformChain alone = chain_of("[{name: blur}]");
  const TransformChain behind = chain_of("[{name: grey, probability: 0}, {name: blur}]");
  const TransformChain second = chain_of("[{name: blur, probability: 0}, {name: blur}]");
  for (int64_t position = 0; position < 10; ++position) {
    const std::vector<uint8_t> blurred = transformed(alone, image, {1, position, 0});
    EXPECT_EQ(transformed(behind, image, {1, position, 0}), blurred);
    EXPECT_NE(transformed(second, image, {1, position, 0}), blurred);
  }
}

TEST(TransformChain, RefusesImagesWithoutColoursByName) {
  EXPECT_EQ(testing::config_error_of([] { chain_of("[{name: blur}, {name: grey}]", 1); }),
            "data.augment.transforms[1]: grey needs images of 3 channels, these have 1");
  const EditedImage image = test_image({1, 6, 7});
  for (const std::string& entry : all_transforms()) {
    if (entry.find("blur") == std::string::npos && entry.find("solarise") == std::string::npos &&
        entry.find("erasing") == std::string::npos) {
      EXPECT_THROW(chain_of(listed({entry}), 1), ConfigError) << entry;
    } else {
      EXPECT_NE(transformed(chain_of(listed({entry}), 1), image, {1, 2, 0}), image.pixel_CHW);
    }
  }
}

TEST(TransformChain, WantsAProbabilityForEachViewOrOneForAll) {
  const auto options = transforms_of(
      "[{name: grey, probability: 0.2}, {name: blur, probability: {views: [1, 0.1]}}]");
  EXPECT_NO_THROW(require_views(options, 2));
  EXPECT_EQ(
      testing::config_error_of([&] { require_views(options, 1); }),
      "data.augment.transforms[1].probability.views: 2 numbers for 1 view of a training image");
}

TEST(TransformOptions, RefuseWrongNumbersAndNamesWithTheirPath) {
  const auto mistakes = [](const std::string& list) {
    return testing::mistakes_of([&] { transforms_of(list); });
  };
  EXPECT_THAT(mistakes("[{name: blur, sigma: [2, 0.1]}]"),
              ElementsAre(HasSubstr("transforms[0].sigma: must be two numbers, the least first")));
  EXPECT_THAT(mistakes("[{name: grey}, {name: solarise, threshold: 257}]"),
              ElementsAre(HasSubstr("transforms[1].threshold")));
  EXPECT_THAT(mistakes("[{name: grey, probability: 1.5}]"),
              ElementsAre(HasSubstr("transforms[0].probability")));
  EXPECT_THAT(mistakes("[{name: grey, probability: {views: [0.5, 2]}}]"),
              ElementsAre(HasSubstr("transforms[0].probability.views[1]")));
  EXPECT_THAT(mistakes("[{name: grey, probability: {all: 0.5, views: [0.5, 1]}}]"),
              ElementsAre(AllOf(HasSubstr("transforms[0].probability: "), HasSubstr("keep one"))));
  EXPECT_THAT(mistakes("[{name: color_jitter}]"),
              ElementsAre(HasSubstr("did you mean 'colour_jitter'?")));
  EXPECT_THAT(mistakes("[{name: grey, sigma: [0, 1]}]"), ElementsAre(HasSubstr("belongs to blur")));
  EXPECT_THAT(mistakes("[{probability: 1}]"), ElementsAre(HasSubstr("transforms[0].name")));
}

}  // namespace
}  // namespace shoal
