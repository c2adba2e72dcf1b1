#include "runtime/optim/schedule.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/options/config.h"
#include "runtime/options/config_reader.h"

namespace shoal {
namespace {

const StepScale kRun{.samples_per_epoch = 1000, .samples_per_step = 100, .total_steps = 93600};

/// A schedule as a recipe names it: `{name: cosine, warmup: 5%}`.
std::shared_ptr<Schedule> schedule_of(const std::string& recipe) {
  struct Section {
    Choice<Schedule> schedule;
    static constexpr auto fields() {
      return std::tuple{field("schedule", &Section::schedule, "a schedule")};
    }
  };
  const auto loaded = config::load_options_text<Section>("schedule: " + recipe, "recipe");
  return Registry<Schedule>::create(loaded.options.schedule, kRun);
}

std::shared_ptr<Schedule> cosine(const Duration& warmup, double end = 0.0) {
  return schedule_of("{name: cosine, warmup: " + to_text(warmup) + ", end: " + std::to_string(end) +
                     "}");
}

// The learning rates of the MoCo v3 recipe: peak 1e-3, 10k warm-up steps of 93,600.
TEST(Schedule, CosineGivesTheWorkedLearningRates) {
  const auto schedule = cosine(Duration::steps(10000));
  EXPECT_DOUBLE_EQ(1e-3 * schedule->factor(5000), 5e-4);
  EXPECT_NEAR(1e-3 * schedule->factor(20000), 9.6510925e-4, 1e-11);
  EXPECT_NEAR(1e-3 * schedule->factor(51800), 5e-4, 1e-15);
}

TEST(Schedule, WarmUpIsLinearFromZeroAndMeetsThePeak) {
  const auto schedule = cosine(Duration::steps(10));
  EXPECT_EQ(schedule->factor(0), 0.0);
  EXPECT_DOUBLE_EQ(schedule->factor(3), 0.3);
  EXPECT_EQ(schedule->factor(10), 1.0);
  EXPECT_LT(schedule->factor(11), 1.0);
}

TEST(Schedule, WithoutWarmUpTheFirstStepHasThePeak) {
  EXPECT_EQ(cosine(Duration::steps(0))->factor(0), 1.0);
}

TEST(Schedule, CosineEndsAtItsEndAndStaysThere) {
  EXPECT_NEAR(cosine(Duration::percent(5))->factor(93600), 0.0, 1e-15);
  EXPECT_GT(cosine(Duration::percent(5))->factor(93599), 0.0);
  EXPECT_DOUBLE_EQ(cosine(Duration::percent(5), 0.25)->factor(93600), 0.25);
  EXPECT_DOUBLE_EQ(cosine(Duration::percent(5), 0.25)->factor(100000), 0.25);
}

TEST(Schedule, WarmUpMayBeGivenInEpochsAndPercent) {
  EXPECT_DOUBLE_EQ(cosine(Duration::epochs(2))->factor(5), 0.25);       // 20 steps
  EXPECT_DOUBLE_EQ(cosine(Duration::percent(50))->factor(23400), 0.5);  // 46,800 steps
}

TEST(Schedule, ARunThatEndsWithinItsWarmUpStaysOnTheLine) {
  const auto schedule = cosine(Duration::steps(200000));
  EXPECT_DOUBLE_EQ(schedule->factor(93599), 93599 / 200000.0);
  EXPECT_DOUBLE_EQ(cosine(Duration::steps(93600))->factor(93600), 0.0);
}

TEST(Schedule, WarmUpInTimeIsRefused) {
  EXPECT_THROW(schedule_of("{name: cosine, warmup: 60s}"), ConfigError);
}

TEST(Schedule, LinearIsAStraightLineToItsEnd) {
  const auto schedule = schedule_of("{name: linear, warmup: 3600step, end: 0.2}");
  EXPECT_DOUBLE_EQ(schedule->factor(1800), 0.5);
  EXPECT_DOUBLE_EQ(schedule->factor(3600), 1.0);
  EXPECT_DOUBLE_EQ(schedule->factor(3600 + 45000), 0.6);
  EXPECT_DOUBLE_EQ(schedule->factor(93600), 0.2);
}

TEST(Schedule, ConstantStaysAtThePeak) {
  const auto schedule = schedule_of("{name: constant}");
  EXPECT_EQ(schedule->factor(0), 1.0);
  EXPECT_EQ(schedule->factor(93599), 1.0);
}

TEST(Schedule, StepMultipliesAtEachMilestone) {
  const auto schedule = schedule_of("{name: step, milestones: [3ep, 60step], gamma: 0.5}");
  EXPECT_EQ(schedule->factor(29), 1.0);
  EXPECT_EQ(schedule->factor(30), 0.5);
  EXPECT_EQ(schedule->factor(59), 0.5);
  EXPECT_EQ(schedule->factor(60), 0.25);
}

TEST(Schedule, AllMembersAreRegistered) {
  for (const char* name : {"constant", "cosine", "linear", "step"}) {
    EXPECT_EQ(Registry<Schedule>::create(Choice<Schedule>(name), kRun)->factor(0), 1.0) << name;
  }
}

}  // namespace
}  // namespace shoal
