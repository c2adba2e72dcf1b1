#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/parsers/recipe_helper.h"

namespace shoal::sample {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A recipe that may hold mistakes.
class ReadOptions : public ::testing::Test {
 protected:
  Recipe read(const std::string& text, const std::vector<std::string>& overrides = {}) {
    diagnostics_ = {};
    const std::string path = folder_.write("r.yaml", text);
    return config::read_options<Recipe>({path, overrides, variables()},
                                        config::UnsetVariable::kRefuse, diagnostics_)
        .options;
  }

  /// The sections with mistakes.
  std::vector<std::string> touched(const std::string& text,
                                   const std::vector<std::string>& overrides = {}) {
    read(text, overrides);
    std::vector<std::string> names;
    for (const char* name : {"data", "model", "optimizer", "train", "seed"}) {
      if (diagnostics_.has_mistake_in(name)) names.emplace_back(name);
    }
    return names;
  }

  Folder folder_;
  config::Diagnostics diagnostics_;
};

const auto kAll = ElementsAre("data", "model", "optimizer", "train", "seed");

TEST_F(ReadOptions, NotesMistakesAndReadsTheRest) {
  const Recipe recipe = read(
      "seed: x\n"
      "model: {backbone: mixer, width: 4, hight: 5}\n"
      "train: {duration: 3ep, batch: 16}\n");
  EXPECT_EQ(diagnostics_.size(), 2u);
  EXPECT_EQ(recipe.train.batch, 16);
  EXPECT_EQ(recipe.model.backbone.options<Mixer>().width, 4);
}

TEST_F(ReadOptions, ThrowsOnlyForADocumentThatCannotBeRead) {
  EXPECT_NO_THROW(read("model: {backbone: none}\n", {"nothing", "seed=!x"}));
  EXPECT_THROW(read("train: [\n"), ConfigError);
  EXPECT_THROW(read("- 1\n"), ConfigError);
  EXPECT_THROW(read(kGood + "include: none.yaml\n"), ConfigError);
  // What it would have brought is missing; that is no mistake of the recipe.
  EXPECT_THROW(read("include: [[]]\n"), ConfigError);
}

TEST_F(ReadOptions, LeavesSectionsOfAGoodRecipeUntouched) {
  EXPECT_THAT(touched(kGood), ElementsAre());
  EXPECT_EQ(diagnostics_.size(), 0u);
}

TEST_F(ReadOptions, AMistakeTouchesTheSectionItIsIn) {
  EXPECT_THAT(touched(kGood + "seed: x\n"), ElementsAre("seed"));
  EXPECT_THAT(touched(kGood, {"model.widht=3"}), ElementsAre("model"));
  EXPECT_THAT(touched(kGood, {"model.router.top_k=0"}), ElementsAre("model"));
  EXPECT_THAT(touched(kGood, {"model.losses=[{name: importance, weight: x}]"}),
              ElementsAre("model"));
  EXPECT_THAT(touched(kGood, {"~train.bach"}), ElementsAre("train"));
  EXPECT_THAT(touched(kGood + "data: 3\n"), ElementsAre("data"));
  EXPECT_THAT(touched(kGood + "data: {flip: true, flip: true}\n"), ElementsAre("data"));
  // Between keys of the section.
  EXPECT_THAT(touched(kGood, {"model.router.top_k=5"}), ElementsAre("model"));
}

TEST_F(ReadOptions, AMissingKeyTouchesItsSection) {
  EXPECT_THAT(touched("model: {backbone: mixer}\ntrain: {batch: 8}\n"), ElementsAre("train"));
  EXPECT_THAT(touched("seed: 3\n"), ElementsAre("model", "train"));
}

TEST_F(ReadOptions, AMistakeOutsideEverySectionTouchesAll) {
  EXPECT_THAT(touched(kGood + "tarin: {batch: 9}\n"), kAll);
  EXPECT_THAT(touched(kGood, {"tarin.batch=9"}), kAll);
  EXPECT_THAT(touched(kGood, {"~tarin.batch"}), kAll);
  EXPECT_THAT(touched(kGood, {"train.batch"}), kAll);
}

TEST_F(ReadOptions, ABrokenValueTouchesWhereItIsUsed) {
  EXPECT_THAT(touched(kGood + "seed: ${nothing}\noptimizer: {name: lamb, lr: \"${seed}\"}\n"),
              ElementsAre("optimizer", "seed"));
  EXPECT_THAT(diagnostics_.lines(), ElementsAre(HasSubstr(":4:7: seed: this recipe does not set")));
}

TEST_F(ReadOptions, MistakesBeyondThoseShownTouchTheirSections) {
  std::string text = kGood + "data:\n";
  for (int i = 0; i < 120; ++i) text += "  key" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(touched(text + "seed: x\n"), ElementsAre("data", "seed"));
  EXPECT_THAT(touched(text + "optimizer: {name: lamb, l: 1}\n"), ElementsAre("data", "optimizer"));
}

}  // namespace
}  // namespace shoal::sample
