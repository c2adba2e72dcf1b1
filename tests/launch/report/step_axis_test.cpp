#include "launch/report/step_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/markup.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNan;

std::vector<std::pair<double, double>> spans(const std::vector<double>& steps) {
  std::vector<StepSpan> logged;
  for (const double step : steps) logged.push_back({step, step});
  std::vector<std::pair<double, double>> result;
  for (const StepSpan& span : spans_of(logged)) result.emplace_back(span.begin, span.end);
  return result;
}

TEST(StepSpans, ReachBackToTheValueBefore) {
  EXPECT_THAT(spans({10, 20, 25}),
              ElementsAre(std::pair(0, 10), std::pair(10, 20), std::pair(20, 25)));
  EXPECT_THAT(spans({7}), ElementsAre(std::pair(0, 7)));
  EXPECT_THAT(spans({}), ElementsAre());
}

TEST(StepSpans, FollowAnotherIntervalOfLogging) {
  EXPECT_THAT(spans({10, 20, 70, 120}), ElementsAre(std::pair(0, 10), std::pair(10, 20),
                                                    std::pair(20, 70), std::pair(70, 120)));
}

TEST(StepSpans, LeaveGapsOpen) {
  EXPECT_THAT(spans({10, 20, 90, 100}), ElementsAre(std::pair(0, 10), std::pair(10, 20),
                                                    std::pair(80, 90), std::pair(90, 100)));
  EXPECT_THAT(spans({80, 90, 100}),
              ElementsAre(std::pair(70, 80), std::pair(80, 90), std::pair(90, 100)));
}

TEST(StepSpans, OfJoinedValuesHoldAllOfThem) {
  const std::vector<StepSpan> joined = spans_of({{10, 40}, {50, 80}});
  ASSERT_EQ(joined.size(), 2u);
  EXPECT_EQ(joined[0].begin, 0);
  EXPECT_EQ(joined[1].begin, 40);
  EXPECT_EQ(joined[1].end, 80);
}

TEST(StepColumns, AreAStepEachOrEqualParts) {
  EXPECT_EQ(StepColumns(5).size(), 5u);
  EXPECT_EQ(StepColumns(0).size(), 1u);
  const StepColumns many(1000);
  EXPECT_EQ(many.size(), 200u);
  EXPECT_EQ(many.end(0), 5);
  EXPECT_EQ(many.end(199), 1000);
}

TEST(StepColumns, HaveTheMeanOfWhatWasLoggedInThem) {
  const StepColumns four(4);
  EXPECT_THAT(four.means({{0, 1}, {1, 3}}, {1, 5}), ElementsAre(1, 5, 5, IsNan()));
  EXPECT_THAT(four.means({{0, 2}, {2, 3}}, {std::nan(""), 5}),
              ElementsAre(IsNan(), IsNan(), 5, IsNan()));
  // Column 0 holds the steps up to 5: four of the first value, one of the second.
  const StepColumns parts(1000);
  EXPECT_NEAR(parts.means({{0, 4}, {4, 10}}, {1, 6})[0], 2, 1e-12);
  EXPECT_NEAR(parts.means({{0, 4}, {4, 10}}, {1, 6})[1], 6, 1e-12);
}

TEST(StepAxis, LabelsRoundSteps) {
  const std::string svg = step_axis_svg(384, 100);
  EXPECT_EQ(testing::markup_mistake(svg), "");
  EXPECT_THAT(svg, AllOf(HasSubstr(">0</text>"), HasSubstr(">100</text>"), HasSubstr(">300</text>"),
                         HasSubstr("M54 100H390")));
}

}  // namespace
}  // namespace shoal
