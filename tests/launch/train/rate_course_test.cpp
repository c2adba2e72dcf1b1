#include "launch/train/rate_course.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/equality_recipe.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// 5 steps of 8 samples, 40 in an epoch.
std::string change(const std::vector<std::string>& before, const std::vector<std::string>& now,
                   int64_t steps_done) {
  const StepScale scale{.samples_per_epoch = 40, .samples_per_step = 8, .total_steps = 5};
  return describe_rate_change(testing::equality_recipe(before), testing::equality_recipe(now),
                              scale, steps_done);
}

TEST(RateCourse, OfALongerRunStretchesACosine) {
  const std::string schedule = "schedule={name: cosine}";
  EXPECT_EQ(change({schedule}, {schedule}, 2), "");
  // 0.02 * 0.5 * (1 + cos(pi 2/4)) before, 0.02 * 0.5 * (1 + cos(pi 2/8)) now.
  EXPECT_THAT(change({schedule, "train.duration=4step"}, {schedule, "train.duration=8step"}, 2),
              AllOf(HasSubstr("at step 3 it is 1.71e-02 instead of 1.00e-02"),
                    HasSubstr("cosine now spans 8 steps instead of 4")));
}

TEST(RateCourse, OfAFinishedRunIsComparedAtItsEnd) {
  const std::string schedule = "schedule={name: linear}";
  EXPECT_THAT(change({schedule, "train.duration=1ep"}, {schedule, "train.duration=2ep"}, 5),
              HasSubstr("at step 6 it is 1.00e-02 instead of 0.00e+00"));
}

TEST(RateCourse, OfAConstantRateStays) {
  EXPECT_EQ(change({"train.duration=4step"}, {"train.duration=8step"}, 2), "");
  EXPECT_EQ(change({"train.duration=4step"}, {"train.duration=8step"}, 4), "");
}

TEST(RateCourse, MayChangeLaterOnOnly) {
  const std::vector<std::string> before{"train.duration=100step",
                                        "schedule={name: step, milestones: [60%]}"};
  EXPECT_THAT(change(before, {before[1], "train.duration=120step"}, 10),
              HasSubstr("at step 61 it is 2.00e-02 instead of 2.00e-03"));
  EXPECT_EQ(change(before, {before[1], "train.duration=120step"}, 80), "");
}

TEST(RateCourse, FollowsTheOptimizersPeak) {
  EXPECT_THAT(
      change({}, {"optimizer.lr=0.04"}, 2),
      AllOf(HasSubstr("at step 3 it is 4.00e-02 instead of 2.00e-02"), Not(HasSubstr("spans"))));
}

}  // namespace
}  // namespace shoal
