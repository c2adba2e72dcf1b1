#include "launch/recipe/other_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/recipe/resume_rules.h"
#include "runtime/data/images/shapes.h"
#include "runtime/options/config_writer.h"
#include "tests/support/config_error.h"
#include "tests/support/equality_recipe.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::equality_recipe;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const DataOptions& data) { return config::emit(config::to_node(data)); }

/// The sets of the recipe with these overrides, as `NAME: section`.
std::string sets_with(const std::vector<std::string>& overrides) {
  std::string text;
  for (const auto& [name, data] : equality_recipe(overrides).evaluate.sets) {
    text += name + ":\n" + text_of(data);
  }
  return text;
}

ChangedRecipe changed(const Recipe& own, const std::vector<std::string>& overrides) {
  return read_changed(own, {"a checkpoint", overrides, nullptr});
}

TEST(FixNormalisation, TakesTheSourcesNumbers) {
  Recipe recipe = equality_recipe();
  EXPECT_TRUE(fix_normalisation(recipe.data));
  EXPECT_THAT(text_of(recipe.data), HasSubstr("mean: [0.32, 0.32, 0.32]"));
  EXPECT_FALSE(fix_normalisation(recipe.data));
  recipe = equality_recipe({"data.normalise.mean=[0.5, 0.5, 0.5]"});
  EXPECT_TRUE(fix_normalisation(recipe.data));
  EXPECT_THAT(text_of(recipe.data),
              AllOf(HasSubstr("mean: [0.5, 0.5, 0.5]"), HasSubstr("std: [0.3, 0.3, 0.3]")));
  Recipe text = equality_recipe(testing::text_data());
  EXPECT_FALSE(fix_normalisation(text.data));
  Recipe wrong = equality_recipe({"data.normalise.mean=[0.5]"});
  EXPECT_FALSE(fix_normalisation(wrong.data));
}

TEST(FixNormalisation, MakesNoDifferenceOnResume) {
  Recipe fixed = equality_recipe();
  fix_normalisation(fixed.data);
  EXPECT_TRUE(differences_of(equality_recipe(), fixed).empty());
  EXPECT_EQ(differences_of(equality_recipe({"data.normalise.std=[1, 1, 1]"}), fixed).size(), 1u);
}

TEST(EvaluationSets, AreTheRecipesDataButForTheirKeys) {
  EXPECT_EQ(sets_with({}), "");
  const std::string same = sets_with({"evaluate.sets.noisy.noise=0.5"});
  EXPECT_THAT(same, AllOf(HasSubstr("noisy:\nsource: shapes\n"), HasSubstr("image_size: 8"),
                          HasSubstr("noise: 0.5"), HasSubstr("samples: 11")));
  EXPECT_THAT(sets_with({"evaluate.sets={a: {valid: {samples: 5}}, b: {}}"}),
              AllOf(HasSubstr("valid:\n  samples: 5"), HasSubstr("b:\nsource: shapes")));
}

TEST(EvaluationSets, OfAnotherSourceKeepWhatTheModelIsTrainedFor) {
  const std::string other =
      sets_with({"evaluate.sets.photos={source: image_folder, path: photos, valid: {folder: x}}"});
  EXPECT_THAT(other, AllOf(HasSubstr("source: image_folder"), HasSubstr("path: photos"),
                           HasSubstr("folder: x"), HasSubstr("classes: 3"),
                           HasSubstr("image_size: 8"), HasSubstr("mean: [0.32, 0.32, 0.32]")));
  EXPECT_THAT(other, AllOf(Not(HasSubstr("samples")), Not(HasSubstr("noise"))));
}

TEST(EvaluationSets, AreReadAgainAsTheyWereWritten) {
  const Recipe recipe =
      equality_recipe({"evaluate.sets={a: {noise: 0.2}, b: {source: image_folder, path: x}}"});
  const std::string text = config::canonical_text(recipe);
  const Recipe again = config::load_options_text<Recipe>(text, "again").options;
  EXPECT_EQ(config::canonical_text(again), text);
}

TEST(EvaluationSets, AChoiceOfAnotherMemberHasItsOwnKeys) {
  const std::string set =
      sets_with({"data={source: image_folder, path: x, classes: 3, image_size: 8, "
                 "valid: {crop: {name: center, resize: 9}}}",
                 "evaluate.sets.cut.valid.crop={name: random_resized, scale: [0.5, 1]}"});
  EXPECT_THAT(set, AllOf(HasSubstr("name: random_resized"), HasSubstr("folder: val")));
}

TEST(EvaluationSets, LocateMistakes) {
  const auto mistakes_in = [](const std::vector<std::string>& overrides) {
    return testing::mistakes_of([&] { equality_recipe(overrides); });
  };
  EXPECT_THAT(mistakes_in({"evaluate.sets.a.niose=1"}),
              ElementsAre(AllOf(HasSubstr("command line: evaluate.sets.a.niose=1: unknown key"),
                                HasSubstr("did you mean 'noise'?"))));
  EXPECT_THAT(mistakes_in({"evaluate.sets={a b: {}}"}),
              ElementsAre(AllOf(HasSubstr("'a b' is not a name"),
                                HasSubstr("use letters, digits, _ and -"))));
  EXPECT_THAT(
      mistakes_in({"evaluate.sets.a.source=shaeps"}),
      ElementsAre(HasSubstr("evaluate.sets.a.source=shaeps: unknown data source 'shaeps'")));
  EXPECT_THAT(mistakes_in({"evaluate.sets.a=5"}),
              ElementsAre(HasSubstr("expected a mapping of keys")));
  EXPECT_THAT(mistakes_in({"data.noise=2", "evaluate.sets.a.noise=0.1"}),
              ElementsAre(HasSubstr("data.noise")));
}

TEST(ChangedRecipe, KeepsWhatTheModelIsTrainedForInAnotherSource) {
  Recipe own = equality_recipe({"data.valid.samples=7"});
  fix_normalisation(own.data);
  const ChangedRecipe other =
      changed(own, {"data.source=image_folder", "data.path=photos", "data.valid.folder=test"});
  EXPECT_THAT(other.kept, ElementsAre("classes", "image_size", "normalise"));
  EXPECT_THAT(text_of(other.loaded.options.data),
              AllOf(HasSubstr("path: photos"), HasSubstr("folder: test"), HasSubstr("classes: 3"),
                    HasSubstr("image_size: 8"), HasSubstr("mean: [0.32, 0.32, 0.32]"),
                    Not(HasSubstr("samples"))));
  const ChangedRecipe given = changed(own, {"data.source=image_folder", "data.classes=none",
                                            "data.normalise={mean: auto, std: auto}"});
  EXPECT_THAT(given.kept, ElementsAre("image_size"));
  EXPECT_THAT(text_of(given.loaded.options.data),
              AllOf(HasSubstr("classes: none"), HasSubstr("mean: auto")));
}

// The number of an imported model's stand-in data must not limit other data.
TEST(ChangedRecipe, LeavesNumbersOfSamplesBehind) {
  Recipe own = equality_recipe({"data.classes=10", "data.image_size=32", "model.patch=16"});
  const ChangedRecipe other = changed(own, {"data.source=cifar"});
  EXPECT_THAT(text_of(other.loaded.options.data),
              AllOf(HasSubstr("source: cifar"), HasSubstr("samples: auto"), Not(HasSubstr("11"))));
}

TEST(ChangedRecipe, OfTheSameSourceKeepsTheOtherKeys) {
  const Recipe own = equality_recipe({"data.noise=0.25"});
  for (const char* same : {"data.source=shapes", "data.seed=0"}) {
    const ChangedRecipe other = changed(own, {same, "data.valid.samples=3"});
    EXPECT_TRUE(other.kept.empty());
    EXPECT_THAT(text_of(other.loaded.options.data),
                AllOf(HasSubstr("noise: 0.25"), HasSubstr("valid:\n  samples: 3")));
  }
}

TEST(ChangedRecipe, AsksForWhatCannotBeKept) {
  EXPECT_THAT(testing::mistakes_of([] { changed(equality_recipe(), {"data.source=text"}); }),
              ElementsAre(HasSubstr("data.train.files: required key is missing"),
                          HasSubstr("data.valid.files: required key is missing")));
  EXPECT_THAT(testing::mistakes_of([] { changed(equality_recipe(), {"data.source=txet"}); }),
              ElementsAre(HasSubstr("unknown data source 'txet'")));
}

}  // namespace
}  // namespace shoal
