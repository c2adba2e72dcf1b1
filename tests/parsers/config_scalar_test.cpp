#include "runtime/yaml/config_scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/text.h"

namespace shoal::config {
namespace {

std::optional<int64_t> integer(const std::string& text) {
  std::string problem;
  return parse_integer(text, problem);
}

std::optional<double> number(const std::string& text) {
  std::string problem;
  return parse_number(text, problem);
}

TEST(Integer, IsReadExactly) {
  EXPECT_EQ(integer("0"), 0);
  EXPECT_EQ(integer("-7"), -7);
  EXPECT_EQ(integer("+7"), 7);
  EXPECT_EQ(integer("1e3"), 1000);
  EXPECT_EQ(integer("3e8"), 300'000'000);
  EXPECT_EQ(integer("3E+8"), 300'000'000);
  EXPECT_EQ(integer("1.5e3"), 1500);
  EXPECT_EQ(integer("1500e-2"), 15);
  EXPECT_EQ(integer("0e999999"), 0);
  EXPECT_EQ(integer("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(integer("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(integer("9223372036854775807e0"), std::numeric_limits<int64_t>::max());
}

TEST(Integer, RefusesEverythingElse) {
  for (const char* text : {"",
                           "-",
                           "e3",
                           "1e",
                           "1e+",
                           "010",
                           "-01",
                           "0x1F",
                           "0b1",
                           "0o7",
                           "1_000",
                           "1,000",
                           "1.0",
                           "1.",
                           ".5",
                           "1.5",
                           "1e-3",
                           "15e-2",
                           "9223372036854775808",
                           "-9223372036854775809",
                           "1e19",
                           "1e99999999999999999999",
                           " 1",
                           "1 ",
                           "one",
                           "true",
                           "nan",
                           "--1"}) {
    EXPECT_FALSE(integer(text)) << text;
  }
}

TEST(Number, IsReadToTheNearestDouble) {
  EXPECT_EQ(number("0.1"), 0.1);
  EXPECT_EQ(number("-2e-3"), -0.002);
  EXPECT_EQ(number("+.5"), 0.5);
  EXPECT_EQ(number("5."), 5.0);
  EXPECT_EQ(number("7"), 7.0);
  EXPECT_EQ(number("0.000e-999"), 0.0);
  EXPECT_EQ(number("1.7976931348623157e308"), std::numeric_limits<double>::max());
  EXPECT_EQ(number("5e-324"), std::numeric_limits<double>::denorm_min());
}

TEST(Number, RefusesEverythingElse) {
  for (const char* text :
       {"",      ".",         "e5",    "nan",    ".nan",   ".NaN",           "inf",
        "-.inf", "+Infinity", "1e400", "-1e400", "1e-400", "1e-99999999999", "01",
        "00.5",  "0x1p3",     "1d5",   "1f",     "1e5.5",  "1 000",          "1,5",
        "true"}) {
    EXPECT_FALSE(number(text)) << text;
  }
}

TEST(Number, IsWrittenAsShortAsItReadsBack) {
  EXPECT_EQ(number_text(0.002), "0.002");
  EXPECT_EQ(number_text(1e-6), "1e-6");
  EXPECT_EQ(number_text(3e20), "3e20");
  EXPECT_EQ(number_text(1.0), "1");
  EXPECT_EQ(number_text(-0.5), "-0.5");
  for (const double value : {0.1, 1.0 / 3.0, 1e-300, 123456789.123456789, 5e-324, -0.0}) {
    const std::optional<double> back = number(number_text(value));
    ASSERT_TRUE(back) << number_text(value);
    EXPECT_EQ(*back, value);
    EXPECT_EQ(std::signbit(*back), std::signbit(value));
  }
}

TEST(Boolean, IsTrueOrFalseOnly) {
  std::string problem;
  EXPECT_EQ(parse_boolean("true", problem), true);
  EXPECT_EQ(parse_boolean("false", problem), false);
  for (const char* text : {"True", "TRUE", "yes", "no", "on", "off", "y", "1", "0", ""}) {
    EXPECT_FALSE(parse_boolean(text, problem)) << text;
  }
}

TEST(Utf8, FindsWhatIsNotVisible) {
  EXPECT_EQ(invisible_character("caf\u00e9 \u4e2d \U0001f600"), "");
  EXPECT_EQ(invisible_character("a\nb"), "U+000A");
  EXPECT_EQ(invisible_character("a\u202eb"), "U+202E");
  EXPECT_EQ(invisible_character("\u00e9\u200b"), "U+200B");
  EXPECT_EQ(invisible_character("\U000e0041"), "U+E0041");
  const auto found = find_invisible("\u00e9\u0085x");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->begin, 2u);
  EXPECT_EQ(found->length, 2u);
}

TEST(Wording, HasASingular) {
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(2, "rank"), "2 ranks");
}

TEST(Suggestion, CountsSwapsAsOne) {
  EXPECT_EQ(edit_distance("batch", "batch"), 0);
  EXPECT_EQ(edit_distance("bacth", "batch"), 1);
  EXPECT_EQ(edit_distance("bach", "batch"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Suggestion, IsTheNearestWithinTwo) {
  const std::vector<std::string> keys{"width", "lr", "num_experts", "num_layers"};
  EXPECT_EQ(nearest("widht", keys), "width");
  EXPECT_EQ(nearest("num_expert", keys), "num_experts");
  EXPECT_EQ(nearest("number_experts", keys), "");
  EXPECT_EQ(nearest("xy", keys), "");  // two edits make any two letters `lr`
  EXPECT_EQ(did_you_mean("widht", keys), "; did you mean 'width'?");
  EXPECT_EQ(did_you_mean("zzz", keys), "");
}

}  // namespace
}  // namespace shoal::config
