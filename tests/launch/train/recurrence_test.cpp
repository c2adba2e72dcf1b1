#include "launch/train/recurrence.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace shoal {
namespace {

std::vector<int64_t> steps_of(const Duration& every, const StepScale& scale, int64_t until) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= until; ++step) {
    if (falls_on(every, step, scale)) steps.push_back(step);
  }
  return steps;
}

TEST(Recurrence, FallsOnMultiplesOfSteps) {
  EXPECT_EQ(steps_of(Duration::steps(5), {}, 20), (std::vector<int64_t>{5, 10, 15, 20}));
  EXPECT_EQ(steps_of(Duration::steps(1), {}, 3), (std::vector<int64_t>{1, 2, 3}));
}

TEST(Recurrence, RoundsEachEpochUpOnItsOwn) {
  // 10 samples in batches of 4: epochs end inside steps 3, 5, 8, 10.
  const StepScale scale{.samples_per_epoch = 10, .samples_per_step = 4};
  EXPECT_EQ(steps_of(Duration::epochs(1), scale, 10), (std::vector<int64_t>{3, 5, 8, 10}));
}

TEST(Recurrence, TimesLeftAreThoseThatFallOnSteps) {
  for (const int64_t end : {11, 100, 101, 1000}) {
    const StepScale scale{.samples_per_epoch = 700, .samples_per_step = 512, .total_steps = end};
    for (const Duration& every : {Duration::epochs(1), Duration::percent(1), Duration::percent(10),
                                  Duration::percent(40), Duration::steps(7)}) {
      for (const int64_t step : {int64_t{1}, int64_t{6}, end}) {
        int64_t left = falls_on(every, end, scale) ? 0 : 1;
        for (int64_t s = step; s <= end; ++s) left += falls_on(every, s, scale) ? 1 : 0;
        EXPECT_EQ(times_left(every, step, scale, 0), left) << end << " " << step;
      }
    }
  }
}

TEST(Recurrence, SeveralEpochsCanEndInOneStep) {
  const StepScale scale{.samples_per_epoch = 3, .samples_per_step = 8};
  std::set<int64_t> expected;
  for (int64_t epoch = 1; epoch * 3 <= 80; ++epoch) expected.insert((epoch * 3 + 7) / 8);
  const auto steps = steps_of(Duration::epochs(1), scale, 10);
  EXPECT_EQ(std::set<int64_t>(steps.begin(), steps.end()), expected);
}

TEST(Recurrence, CountsTheTimesLeftWithTheEndOfTheTraining) {
  StepScale scale{.total_steps = 20};
  const Duration every = Duration::steps(5);
  EXPECT_EQ(times_left(every, 1, scale, 0), 4);
  EXPECT_EQ(times_left(every, 5, scale, 0), 4);  // it is still due at its step
  EXPECT_EQ(times_left(every, 6, scale, 0), 3);
  EXPECT_EQ(times_left(every, 20, scale, 0), 1);
  scale.total_steps = 22;
  EXPECT_EQ(times_left(every, 6, scale, 0), 4);
  EXPECT_EQ(times_left(every, 21, scale, 0), 1);
  EXPECT_EQ(times_left(Duration::percent(50), 1, scale, 0), 2);
  EXPECT_EQ(times_left(Duration::seconds(60), 1, scale, 150), 3);
}

TEST(Recurrence, TimeIsDueOnceItHasPassed) {
  const auto start = Recurrence::Clock::time_point{};
  Recurrence every_minute(Duration::seconds(60), {}, start);
  EXPECT_FALSE(every_minute.due_at(60));
  EXPECT_FALSE(every_minute.due_by_time(start + std::chrono::seconds(59)));
  EXPECT_TRUE(every_minute.due_by_time(start + std::chrono::seconds(60)));
  every_minute.restart(start + std::chrono::seconds(60));
  EXPECT_FALSE(every_minute.due_by_time(start + std::chrono::seconds(61)));
}

}  // namespace
}  // namespace shoal
