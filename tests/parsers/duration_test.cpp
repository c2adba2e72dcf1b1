#include "runtime/base/duration.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {
namespace {

Duration parsed(const std::string& text) {
  const std::optional<Duration> duration = parse_duration(text);
  EXPECT_TRUE(duration) << text;
  return duration.value_or(Duration{});
}

TEST(Duration, ReadsEveryUnit) {
  EXPECT_EQ(parsed("1000step"), Duration::steps(1000));
  EXPECT_EQ(parsed("10ep"), Duration::epochs(10));
  EXPECT_EQ(parsed("2Btok"), (Duration{DurationUnit::kToken, 2'000'000'000, 1}));
  EXPECT_EQ(parsed("30s"), Duration::seconds(30));
  EXPECT_EQ(parsed("3h50min"), Duration::seconds(3 * 3600 + 50 * 60));
  EXPECT_EQ(parsed("1d2h3min4s"), Duration::seconds(86400 + 7200 + 180 + 4));
  EXPECT_EQ(parsed("5%"), Duration::percent(5));
}

TEST(Duration, KeepsDecimalsExact) {
  EXPECT_EQ(parsed("0.1ep"), (Duration{DurationUnit::kEpoch, 1, 10}));
  EXPECT_EQ(parsed("2.50ep"), (Duration{DurationUnit::kEpoch, 25, 10}));
  EXPECT_EQ(parsed("1.5Kstep"), Duration::steps(1500));
  EXPECT_EQ(parsed("1.5h"), Duration::seconds(5400));
  EXPECT_EQ(parsed("1min0.5s"), (Duration{DurationUnit::kSecond, 605, 10}));
}

TEST(Duration, RefusesWhatIsNone) {
  const std::vector<std::string> bad{"",
                                     "10",
                                     "step",
                                     "ep",
                                     "10 ep",
                                     "10epochs",
                                     "1.5step",
                                     "-5ep",
                                     "+5ep",
                                     "05ep",
                                     "1e3step",
                                     "1Kep",
                                     "3min2h",
                                     "3h3h",
                                     "1.5h2min",
                                     "1h30",
                                     "5 %",
                                     "0x5ep",
                                     "1..5ep",
                                     "1.ep",
                                     ".5ep",
                                     "10m",
                                     "1kstep",
                                     "infs",
                                     "1.1234567ep",
                                     "99999999999999999999step",
                                     "10000Ttok"};
  for (const std::string& text : bad) EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Duration, WritesTextThatReadsBack) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"1000step", "1000step"}, {"1Kstep", "1000step"}, {"2.5ep", "2.5ep"},
      {"0.05ep", "0.05ep"},     {"2000Mtok", "2Btok"},  {"1500tok", "1500tok"},
      {"90s", "1min30s"},       {"0s", "0s"},           {"24h", "1d"},
      {"0.5s", "0.5s"},         {"1.5min", "1min30s"},  {"5%", "5%"},
      {"0step", "0step"},       {"0tok", "0tok"}};
  for (const auto& [text, canonical] : cases) {
    EXPECT_EQ(to_text(parsed(text)), canonical);
    EXPECT_EQ(parsed(canonical), parsed(text));
  }
}

TEST(Duration, CountsStepsRoundedUp) {
  const StepScale scale{.samples_per_epoch = 40000,
                        .samples_per_step = 256,
                        .tokens_per_sample = 64,
                        .total_steps = 2188};
  EXPECT_EQ(to_steps(Duration::steps(17), scale), 17);
  EXPECT_EQ(to_steps(Duration::epochs(1), scale), 157);    // 156.25
  EXPECT_EQ(to_steps(Duration::epochs(14), scale), 2188);  // 2187.5, not 14 * 157
  EXPECT_EQ(to_steps(parsed("0.1ep"), scale), 16);         // 15.625
  EXPECT_EQ(to_steps(parsed("1Mtok"), scale), 62);         // 61.04
  EXPECT_EQ(to_steps(Duration::percent(5), scale), 110);   // 109.4
  EXPECT_EQ(to_steps(Duration::percent(100), scale), 2188);
}

TEST(Duration, IsExactWhereDoublesAreNot) {
  const StepScale scale{.samples_per_epoch = 10, .samples_per_step = 1};
  EXPECT_EQ(to_steps(parsed("0.3ep"), scale), 3);  // 0.3 * 10 in doubles is above 3 for 0.1 + 0.2
  EXPECT_EQ(to_steps(parsed("1.1ep"), {.samples_per_epoch = 100, .samples_per_step = 1}), 110);
}

TEST(Duration, RefusesToCountWhatHasNoSteps) {
  EXPECT_THROW(to_steps(Duration::seconds(5), {}), ConfigError);
  EXPECT_THROW(to_steps(Duration::percent(5), {}), ConfigError);
  EXPECT_THROW(to_steps(Duration::epochs(5), {}), ConfigError);
  EXPECT_THROW(to_steps(parsed("1Btok"), {.samples_per_step = 8}), ConfigError);
  EXPECT_THROW(to_steps(parsed("1Btok"), {.samples_per_epoch = 8, .samples_per_step = 8}),
               ConfigError);
}

TEST(Duration, NamesTheUnitsThatAFieldAccepts) {
  EXPECT_EQ(describe_units(kAllDurationUnits), "step, ep, tok, s, min, h, d or %");
  EXPECT_EQ(describe_units(static_cast<unsigned>(DurationUnit::kStep)), "step");
}

TEST(Duration, SaysWhyATextIsNone) {
  const unsigned units =
      static_cast<unsigned>(DurationUnit::kStep) | static_cast<unsigned>(DurationUnit::kEpoch);
  const auto why = [](const std::string& text) { return explain_duration(text, units); };
  EXPECT_EQ(why("10"), "needs a unit: 10step, 10ep");
  EXPECT_EQ(why("1.5"), "needs a unit: 1.5ep");
  EXPECT_EQ(why("010"), "needs a unit (step or ep)");
  EXPECT_EQ(why("-5step"), "is negative");
  EXPECT_EQ(why("1e30step"), "is too large");
  EXPECT_EQ(why("99999999999999999999ep"), "is too large");
  EXPECT_EQ(why("9999999999Mstep"), "is too large");
  EXPECT_EQ(why("1e3step"), "has an exponent; write 1000step");
  EXPECT_EQ(why("5e-3ep"), "has an exponent");
  EXPECT_EQ(why("10steps"), "has no unit that is known (step or ep); did you mean '10step'?");
  EXPECT_EQ(why("3 epochs"), "has no unit that is known (step or ep); did you mean '3ep'?");
  EXPECT_EQ(why("5 parsecs"), "has no unit that is known (step or ep)");
  EXPECT_EQ(why("5 step"), "has a blank; write 5step");
  EXPECT_EQ(why("05ep"), "has a leading zero; leave it out");
  EXPECT_EQ(why("1.5step"), "is not a whole number, or too precise");
  EXPECT_EQ(why("3 hours"), "has no unit that is known (step or ep)");
  EXPECT_EQ(why("1.5 steps"), "has no unit that is known (step or ep)");
  EXPECT_EQ(why("3min2h"), "has another unit than step or ep");
  EXPECT_EQ(explain_duration("3min2h", kAllDurationUnits),
            "is not a time; write 3h50min, the largest unit first");
  EXPECT_EQ(why("10ep5"), "has more behind its unit");
  EXPECT_EQ(explain_duration("5m", kAllDurationUnits),
            "has no unit that is known (step, ep, tok, s, min, h, d or %); did you mean '5min'?");
  EXPECT_EQ(why("5m"), "has no unit that is known (step or ep)");
  EXPECT_EQ(why("soon"), "");
  EXPECT_EQ(why(""), "");
}

TEST(Duration, TakesANumberBelowOneForAShare) {
  const auto why = [](const std::string& text) {
    return explain_duration(text, static_cast<unsigned>(DurationUnit::kPercent) |
                                      static_cast<unsigned>(DurationUnit::kEpoch));
  };
  EXPECT_EQ(why("0.05"), "needs a unit: 0.05ep, 5%");
  EXPECT_EQ(why("0.125"), "needs a unit: 0.125ep, 12.5%");
  EXPECT_EQ(why("0"), "needs a unit: 0ep, 0%");
  EXPECT_EQ(why("5"), "needs a unit: 5ep, 5%");
}

}  // namespace
}  // namespace shoal
