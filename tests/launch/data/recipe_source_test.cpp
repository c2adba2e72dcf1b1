#include "launch/data/recipe_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "runtime/base/error.h"
#include "tests/support/equality_recipe.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

/// Sequences of labelled tokens, each by itself.
class Sentences : public DataSource {
 public:
  DataShape shape() const override {
    return {.source = "sentences", .sequence = 6, .vocabulary = 9, .token_labels = 6};
  }
  std::unique_ptr<SampleSet> open(Split) const override { return nullptr; }
};

TEST(CheckStride, IsForWindowsOfAStream) {
  const auto problem = [](const Recipe& recipe, const DataSource& source) -> std::string {
    try {
      check_stride(recipe, source);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const auto with = [](const std::string& stride) {
    return testing::equality_recipe(testing::joined(testing::text_data(), {stride}));
  };
  const Recipe recipe = with("evaluate.stride=3"), coarse = with("evaluate.stride=7");
  EXPECT_EQ(problem(recipe, *make_source(recipe)), "");
  EXPECT_THAT(problem(coarse, *make_source(coarse)), HasSubstr("7 would leave tokens out"));
  EXPECT_THAT(problem(recipe, Sentences()), HasSubstr("data.source sentences are not windows"));
  EXPECT_EQ(problem(with("evaluate.every=1ep"), Sentences()), "");
}

// An evaluation of sets needs no training data.
TEST(SetSources, AreNotComparedWithClassesThatAreNotKnownYet) {
  const auto sources = [](const std::string& classes) {
    const Recipe recipe = testing::equality_recipe(
        {"data={source: image_folder, path: absent, image_size: 8, classes: " + classes + "}",
         "evaluate.sets.photos={source: image_folder, path: photos, image_size: 8, classes: 3}"});
    return make_set_sources(recipe, *make_source(recipe), {}).size();
  };
  EXPECT_EQ(sources("auto"), 1u);
  EXPECT_EQ(sources("3"), 1u);
  EXPECT_THROW(sources("4"), ConfigError);
}

}  // namespace
}  // namespace shoal
