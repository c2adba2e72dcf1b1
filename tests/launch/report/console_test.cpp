#include "launch/report/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  console.finish();
  std::fclose(stream);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(Console, WritesOneLineAnIntervalIntoAFile) {
  const std::string text = shown(false, 100);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, HasSubstr("step 2/2"));
}

TEST(Console, RewritesOneLineOnATerminalAndStaysWithinItsWidth) {
  const std::string text = shown(true, 50);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, HasSubstr("\r"));
  EXPECT_LT(text.substr(0, text.find('\r')).size(), 50u);
}

TEST(Console, ShowsExpertFiguresOnlyWhereThereAreExperts) {
  Progress progress;
  EXPECT_THAT(progress_line(progress), Not(HasSubstr("drop")));
  progress.dropped_share = 0.1;
  progress.load_max_over_mean = 1.5;
  EXPECT_THAT(progress_line(progress), HasSubstr("drop 10.0%"));
  EXPECT_THAT(progress_line(progress), HasSubstr("load 1.50"));
}

TEST(Console, ShowsAttendingTokensOnlyWhereThereAreGates) {
  Progress progress;
  EXPECT_THAT(progress_line(progress), Not(HasSubstr("attend")));
  progress.gate_rate = 0.123;
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

TEST(Console, FormatsTimesAndSizes) {
  EXPECT_EQ(human_seconds(12.4), "12s");
  EXPECT_EQ(human_seconds(200), "3m20s");
  EXPECT_EQ(human_seconds(3720), "1h02m");
  EXPECT_EQ(human_bytes(512.0 * 1024 * 1024), "512 MiB");
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
