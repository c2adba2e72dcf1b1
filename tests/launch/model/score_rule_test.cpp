#include "launch/model/score_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/check/check_recipe.h"
#include "tests/support/config_error.h"
#include "tests/support/equality_recipe.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Checks the recipe of the tests with these overrides.
CheckedRecipe check_with(const std::vector<std::string>& overrides) {
  return check_recipe({"test", overrides, nullptr, testing::kEqualityRecipe},
                      config::UnsetVariable::kRefuse, 1);
}

ScoreRule rule_with(const std::vector<std::string>& overrides) {
  const CheckedRecipe checked = check_with(overrides);
  return score_rule(*checked.model.task, checked.loaded.options.evaluate);
}

TEST(ScoreRule, IsTheTasksUnlessTheRecipeNamesAMetric) {
  EXPECT_EQ(rule_with({}).metric, "top1");
  EXPECT_TRUE(rule_with({}).higher_is_better);
  EXPECT_EQ(rule_with({"evaluate.score=top5"}).metric, "top5");
  EXPECT_TRUE(rule_with({"evaluate.score=top5"}).higher_is_better);
  EXPECT_FALSE(rule_with({"evaluate.score=loss"}).higher_is_better);
}

TEST(ScoreRule, KnowsTheMetricsOfSets) {
  const ScoreRule rule = rule_with({"evaluate.sets.noisy.noise=0.5", "evaluate.score=noisy.loss"});
  EXPECT_EQ(rule.metric, "noisy.loss");
  EXPECT_FALSE(rule.higher_is_better);
}

TEST(ScoreRule, UnknownMetricsAreLocated) {
  const auto mistakes_in = [](const std::vector<std::string>& overrides) {
    return testing::mistakes_of([&] { check_with(overrides); });
  };
  EXPECT_THAT(
      mistakes_in({"evaluate.score=tpo1"}),
      ElementsAre(AllOf(HasSubstr("command line: evaluate.score=tpo1: no metric is called"),
                        HasSubstr("did you mean 'top1'?"), HasSubstr("one of: loss, top1, top5"))));
  EXPECT_THAT(mistakes_in({"evaluate.score=v2.top1"}),
              ElementsAre(HasSubstr("no metric is called 'v2.top1'")));
  EXPECT_THAT(mistakes_in({"evaluate.sets.v2.noise=0.5", "evaluate.score=v2.samples"}),
              ElementsAre(HasSubstr("one of: loss, top1, top5, v2.loss, v2.top1, v2.top5")));
}

TEST(ScoreRule, SetsMustHaveTheModelsShape) {
  EXPECT_THAT(testing::mistakes_of([] { check_with({"evaluate.sets.large.image_size=16"}); }),
              ElementsAre(AllOf(HasSubstr("evaluate.sets.large: images of 3 x 16 x 16"),
                                HasSubstr("the model is made for images of 3 x 8 x 8"))));
}

TEST(EvaluatedMetrics, AreThoseOfTheDataThenOfTheSets) {
  const CheckedRecipe checked = check_with({"evaluate.sets.v2.noise=0.5"});
  std::vector<std::string> names;
  for (const Metric& metric :
       evaluated_metrics(*checked.model.task, checked.loaded.options.evaluate)) {
    names.push_back(metric.name);
  }
  EXPECT_THAT(names,
              ElementsAre("loss", "top1", "top5", "v2.loss", "v2.top1", "v2.top5", "v2.samples"));
}

}  // namespace
}  // namespace shoal
