#include "launch/train/courses.h"
#include "launch/data/recipe_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sparse/training/learn_permutations.h"
#include "tests/support/equality_recipe.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::joined;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

/// 5 steps of 8 samples, 40 in an epoch.
std::vector<std::string> changes(const std::vector<std::string>& before,
                                 const std::vector<std::string>& now, int64_t steps_done) {
  const StepScale scale{.samples_per_epoch = 40, .samples_per_step = 8, .total_steps = 5};
  const Recipe recipe = testing::equality_recipe(now);
  const BuiltModel model = build_model(recipe, make_source(recipe)->shape());
  StepRules rules;
  if (auto rule = model.task->make_step_rule(scale)) rules.push_back(std::move(rule));
  return describe_course_changes(testing::equality_recipe(before), recipe, rules, scale,
                                 steps_done);
}

/// Lines for a run in which only train.duration changes.
std::vector<std::string> of_durations(const std::vector<std::string>& overrides,
                                      const std::string& before, const std::string& now,
                                      int64_t steps_done) {
  return changes(joined(overrides, {"train.duration=" + before}),
                 joined(overrides, {"train.duration=" + now}), steps_done);
}

TEST(EndCourses, OfALongerRunStretchACosine) {
  const std::vector<std::string> schedule{"schedule={name: cosine}"};
  EXPECT_THAT(changes(schedule, schedule, 2), IsEmpty());
  // 0.02 * 0.5 * (1 + cos(pi 2/4)) before, 0.02 * 0.5 * (1 + cos(pi 2/8)) now.
  EXPECT_THAT(of_durations(schedule, "4step", "8step", 2),
              ElementsAre(AllOf(HasSubstr("the learning rate differs"),
                                HasSubstr("at step 3 it is 0.0170711 instead of 0.01"),
                                HasSubstr("training now spans 8 steps instead of 4"))));
}

TEST(EndCourses, OfAFinishedRunAreComparedAtItsEnd) {
  EXPECT_THAT(of_durations({"schedule={name: linear}"}, "1ep", "2ep", 5),
              ElementsAre(HasSubstr("at step 6 it is 0.01 instead of 0,")));
}

TEST(EndCourses, OfAConstantRateStay) {
  EXPECT_THAT(of_durations({}, "4step", "8step", 2), IsEmpty());
  EXPECT_THAT(of_durations({}, "4step", "8step", 4), IsEmpty());
}

TEST(EndCourses, MayChangeLaterOnOnly) {
  const std::vector<std::string> milestones{"schedule={name: step, milestones: [60%]}"};
  EXPECT_THAT(of_durations(milestones, "100step", "120step", 10),
              ElementsAre(HasSubstr("at step 61 it is 0.02 instead of 0.002")));
  EXPECT_THAT(of_durations(milestones, "100step", "120step", 80), IsEmpty());
}

TEST(EndCourses, FollowTheOptimizersPeak) {
  EXPECT_THAT(changes({}, {"optimizer.lr=0.04"}, 2),
              ElementsAre(AllOf(HasSubstr("at step 3 it is 0.04 instead of 0.02"),
                                Not(HasSubstr("spans")))));
}

TEST(EndCourses, OfAKeyEncoderAreItsMomentum) {
  // 1 - 0.05 (1 + cos(pi 2/4)) before, 1 - 0.05 (1 + cos(pi 2/8)) now.
  EXPECT_THAT(of_durations(testing::moco(), "4step", "8step", 2),
              ElementsAre(HasSubstr("task.momentum differs from the schedule so far: at step 3 it "
                                    "is 0.914645 instead of 0.95")));
  EXPECT_THAT(of_durations(testing::moco({"task.momentum_schedule=constant"}), "4step", "8step", 2),
              IsEmpty());
}

TEST(EndCourses, ArePlacesInPercentThatAreStillAhead) {
  const std::vector<std::string> sparsity{
      "sparsity={density: 0.5, rule: {name: mest, every: 1step, half_from: 25%, until: 50%}, "
      "permutation: {name: learned, ramp: 10%, until: 8step}}",
      "evaluate.every=10%"};
  EXPECT_THAT(of_durations(sparsity, "40step", "80step", 2),
              UnorderedElementsAre(
                  HasSubstr("sparsity.rule.half_from: 25% is step 20 instead of 10, since the "
                            "training now spans 80 steps instead of 40"),
                  HasSubstr("sparsity.rule.until: 50% is step 40 instead of 20"),
                  HasSubstr("sparsity.permutation.ramp: 10% is step 8 instead of 4")));
  EXPECT_THAT(of_durations(sparsity, "40step", "80step", 30),
              ElementsAre(HasSubstr("sparsity.rule.until")));
  EXPECT_THAT(of_durations(sparsity, "40step", "80step", 40), IsEmpty());
}

/// Counts all durations in percent as so many steps.
void count_as_steps(const config::Type& type, void* object, int64_t steps) {
  if (type.kind == config::Kind::kDuration) {
    auto& duration = *static_cast<Duration*>(object);
    if (duration.unit == DurationUnit::kPercent) duration = Duration::steps(steps);
  }
  for (const auto& field : type.fields) {
    count_as_steps(field.type(), field.member(object), steps);
  }
}

template <class Base>
std::vector<std::shared_ptr<Base>> of_two_lengths(const std::string& name,
                                                  std::vector<typename Base::Context> contexts) {
  Choice<Base> choice{name};
  count_as_steps(choice.member()->options_type(), choice.erased_options(), 30);
  return {Registry<Base>::create(choice, contexts[0]), Registry<Base>::create(choice, contexts[1])};
}

// Then the list of durations in percent has all that a longer training changes.
TEST(EndCourses, OfSparseTrainingDependOnTheEndByPercentagesAlone) {
  const StepScale scale{.samples_per_epoch = 8, .samples_per_step = 8, .total_steps = 100};
  StepScale longer = scale;
  longer.total_steps = 200;
  const CellTotals cells{.on = 400, .target = 400, .all = 1000};
  for (const std::string& name : members_of<GrowRule>().names()) {
    const auto rules = of_two_lengths<GrowRule>(name, {{scale}, {longer}});
    EXPECT_EQ(rules[0]->rests_from(), rules[1]->rests_from()) << name;
    for (int64_t step = 0; step < 100; ++step) {
      EXPECT_EQ(rules[0]->is_due(step), rules[1]->is_due(step)) << name << step;
      EXPECT_EQ(rules[0]->counts(step, cells).grow, rules[1]->counts(step, cells).grow) << name;
      if (step >= rules[0]->rests_from() && rules[0]->is_due(step)) {
        EXPECT_EQ(rules[0]->counts(step, cells).grow, 0) << name << " is at rest";
      }
      const SoftChoice *choice = rules[0]->soft_choice(), *other = rules[1]->soft_choice();
      EXPECT_EQ(choice == nullptr ? 0.0 : choice->temperature(step),
                other == nullptr ? 0.0 : other->temperature(step));
    }
  }
  for (const std::string& name : members_of<PermutationMethod>().names()) {
    const auto method = of_two_lengths<PermutationMethod>(name, {{}, {}})[0];
    if (method->learning() == nullptr) continue;
    const LearningSteps steps(*method->learning(), scale), other(*method->learning(), longer);
    EXPECT_EQ(steps.ramp, other.ramp) << name;
    EXPECT_EQ(steps.until, other.until) << name;
  }
}

}  // namespace
}  // namespace shoal
