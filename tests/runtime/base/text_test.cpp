#include "runtime/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TextOfNumbers, FormatsTimesAndSizes) {
  EXPECT_EQ(human_seconds(0), "0s");
  EXPECT_EQ(human_seconds(0.004), "0.1s");
  EXPECT_EQ(human_seconds(0.42), "0.4s");
  EXPECT_EQ(human_seconds(0.97), "1s");
  EXPECT_EQ(human_seconds(12.4), "12s");
  EXPECT_EQ(human_seconds(200), "3m20s");
  EXPECT_EQ(human_seconds(3720), "1h02m");
  EXPECT_EQ(human_bytes(37), "37 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(512.0 * 1024 * 1024), "512 MiB");
  EXPECT_EQ(human_bytes(1.25 * 0x1p40), "1.2 TiB");
}

TEST(TextOfNumbers, GroupsDigits) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(-1000), "-1,000");
  EXPECT_EQ(grouped(59111472), "59,111,472");
  EXPECT_EQ(grouped(1234567.5), "1,234,568");
}

TEST(TextOfNumbers, SplitsAsLinesAreRead) {
  EXPECT_THAT(split("", ','), IsEmpty());
  EXPECT_THAT(split("a", ','), ElementsAre("a"));
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(split(",", ','), ElementsAre(""));
}

}  // namespace
}  // namespace shoal
