#include "runtime/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>

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

TEST(QuotedExcerpt, IsShortAndPrintable) {
  EXPECT_EQ(quoted_excerpt("a\x1B\tb"), "'a??b'");
  EXPECT_EQ(quoted_excerpt(std::string(80, 'a')), "'" + std::string(80, 'a') + "'");
  EXPECT_EQ(quoted_excerpt(std::string(81, 'a')), "'" + std::string(80, 'a') + "...'");
}

TEST(Replaced, PutsATextInPlaceOfEach) {
  EXPECT_EQ(replaced("a-b-", "-", "--"), "a--b--");
  EXPECT_EQ(replaced("{x}{x}", "{x}", ""), "");
  EXPECT_EQ(replaced("abc", "d", "e"), "abc");
}

TEST(LowerCase, ChangesAsciiCapitalsAlone) { EXPECT_EQ(lower_case("[AZ]@ÄÖ-x"), "[az]@ÄÖ-x"); }

TEST(ParseDigits, TakesDigitsAndNothingElse) {
  EXPECT_EQ(parse_digits("0"), 0);
  EXPECT_EQ(parse_digits("007"), 7);
  EXPECT_EQ(parse_digits("17", 8), 15);
  EXPECT_EQ(parse_digits("9223372036854775807"), std::numeric_limits<int64_t>::max());
  for (const char* text : {"", "-1", "-0", "+1", " 1", "1 ", "1x", "0x1", "9223372036854775808"}) {
    EXPECT_EQ(parse_digits(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_digits("8", 8), std::nullopt);
}

}  // namespace
}  // namespace shoal
