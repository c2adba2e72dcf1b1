#include "launch/job/console.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string shown(bool terminal, int64_t width) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  Console console(stream, terminal, width);
  Progress progress;
  progress.step = 1;
  progress.total_steps = 2;
  console.show(progress);
  progress.step = 2;
  console.show(progress);
  console.print("a line");
  console.clear();
  std::fclose(stream);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(Console, WritesOneLineAnIntervalIntoAFile) {
  const std::string text = shown(false, 100);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, HasSubstr("step 2/2"));
}

TEST(Console, KeepsLinesAboveTheBarOnATerminalAndStaysWithinItsWidth) {
  Progress progress;
  progress.total_steps = 2;
  std::string expected;
  for (const int64_t step : {1, 2}) {
    progress.step = step;
    const std::string line = live_line(progress, 49, /*has_bar=*/false),
                      bar = live_line(progress, 49);
    EXPECT_EQ(line.find('['), std::string::npos);
    EXPECT_LT(bar.size(), 50u);
    expected += (step == 1 ? "" : "\r\033[K") + line + "\n" + bar;
  }
  expected += "\r\033[Ka line\n" + live_line(progress, 49) + "\r\033[K";
  EXPECT_EQ(shown(true, 50), expected);
}

/// What is drawn between intervals, twice.
std::string pulsed(bool terminal, Console::Clock::duration period) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  Console console(stream, terminal, 80, period);
  for (int64_t step : {1, 2}) {
    console.pulse([step](int64_t columns) { return fmt::format("{} of {}", step, columns); });
  }
  console.clear();
  std::fclose(stream);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(Console, PulsesOnTerminalsOnlyAndOnceAPeriod) {
  EXPECT_EQ(pulsed(true, std::chrono::seconds(0)), "1 of 79\r\033[K2 of 79\r\033[K");
  EXPECT_EQ(pulsed(true, std::chrono::hours(1)), "");
  EXPECT_EQ(pulsed(false, std::chrono::seconds(0)), "");
}

TEST(Console, ShowsStepAndTimeAloneBeforeAnythingIsMeasured) {
  Progress progress;
  progress.step = 3;
  progress.total_steps = 30;
  progress.seconds_left = 27;
  progress.is_measured = false;
  EXPECT_EQ(live_line(progress, 80), "[##------------------]  step 3/30  eta 27s");
}

TEST(Console, ShowsWhatStepsWaitFor) {
  EXPECT_EQ(share_done("evaluation", 7, 20), "evaluation 35%");
  EXPECT_EQ(share_done("evaluation", 0, 0), "evaluation 0%");
  Progress progress;
  progress.activity = "evaluation 35%";
  EXPECT_THAT(live_line(progress, 40), HasSubstr("step 0/0  evaluation 35%  "));
}

/// All that a line can have, in long numbers.
Progress full_progress() {
  Progress progress;
  progress.step = 123456;
  progress.total_steps = 400000;
  progress.loss = 2.1417;
  progress.lr = 3e-3;
  progress.grad_norm = 2.083;
  progress.items_per_second = 25270;
  progress.ranks = 2;
  progress.dropped_share = 0.1;
  progress.load_max_over_mean = 1.1;
  progress.layers = {"attend 25.0%"};
  progress.all_to_all_ms = 0.7;
  progress.data_wait_share = 0.01;
  progress.memory_bytes = int64_t{180} << 20;
  progress.seconds_left = 3720;
  return progress;
}

TEST(Console, LeavesOutTheLeastImportantOfALiveLine) {
  const Progress progress = full_progress();
  EXPECT_EQ(live_line(progress, 200),
            "[######--------------]  step 123456/400000  loss 2.1417  lr 3.00e-03  |g| 2.083  "
            "25270 img/s (12635/rank)  drop 10.0%  attend 25.0%  load 1.10  a2a 0.7ms  data 1%  "
            "mem 180 MiB  eta 1h02m");
  EXPECT_EQ(live_line(progress, 119),
            "[###-------]  step 123456/400000  loss 2.1417  lr 3.00e-03  |g| 2.083  25270 img/s  "
            "drop 10.0%  load 1.10  eta 1h02m");
  EXPECT_EQ(live_line(progress, 79),
            "[###-------]  step 123456/400000  loss 2.1417  25270 img/s  eta 1h02m");
  EXPECT_EQ(live_line(progress, 59), "step 123456/400000  loss 2.1417  25270 img/s  eta 1h02m");
  EXPECT_EQ(live_line(progress, 31), "step 123456/400000  eta 1h02m");
}

TEST(Console, KeepsStepAndTimeLeftAtAnyWidth) {
  const Progress progress = full_progress();
  std::string before;
  for (int64_t columns = 39; columns < 220; ++columns) {
    const std::string line = live_line(progress, columns);
    EXPECT_LE(line.size(), static_cast<size_t>(columns));
    EXPECT_THAT(line, HasSubstr("step 123456/400000  "));
    EXPECT_THAT(line, ::testing::EndsWith("  eta 1h02m"));
    EXPECT_GE(line.size() + 12, before.size()) << "a wider line shows less";
    before = line;
  }
}

TEST(Console, ShowsExpertFiguresOnlyWhereThereAreExperts) {
  Progress progress;
  EXPECT_THAT(progress_line(progress), Not(HasSubstr("drop")));
  progress.dropped_share = 0.1;
  progress.load_max_over_mean = 1.5;
  EXPECT_THAT(progress_line(progress), HasSubstr("drop 10.0%"));
  EXPECT_THAT(progress_line(progress), HasSubstr("load 1.50"));
}

TEST(Console, ShowsWhatLayersLog) {
  Progress progress;
  EXPECT_THAT(progress_line(progress), Not(HasSubstr("attend")));
  progress.layers = {"attend 12.3%"};
  EXPECT_THAT(progress_line(progress), HasSubstr("attend 12.3%"));
}

TEST(Console, ShowsTheShareOfThePeakWhereItIsKnown) {
  Progress progress;
  EXPECT_THAT(progress_line(progress), Not(HasSubstr("mfu")));
  progress.mfu = 0.314;
  EXPECT_THAT(progress_line(progress), HasSubstr("  mfu 31.4%"));
}

TEST(Console, ShowsNotANumberWithoutASign) {
  Progress progress;
  progress.loss = -std::nan("");
  progress.grad_norm = -std::nan("");
  EXPECT_THAT(progress_line(progress), HasSubstr("loss nan  "));
  EXPECT_THAT(progress_line(progress), HasSubstr("|g| nan  "));
  progress.loss = -INFINITY;
  EXPECT_THAT(progress_line(progress), HasSubstr("loss -inf  "));
}

TEST(Console, ShowsTheTimeOfExchangesWhereItIsKnown) {
  Progress progress;
  progress.ranks = 2;
  EXPECT_THAT(progress_line(progress), Not(HasSubstr("a2a")));
  progress.all_to_all_ms = 1.25;
  EXPECT_THAT(progress_line(progress), HasSubstr("  a2a 1.2ms"));
}

}  // namespace
}  // namespace shoal
