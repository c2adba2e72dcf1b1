#include "launch/report/curve_figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "tests/support/markup.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::count_of;
using ::testing::HasSubstr;
using testing::markup_mistake;
using ::testing::Not;

Curve curve_with(const std::vector<double>& values) {
  Curve curve("loss");
  for (size_t i = 0; i < values.size(); ++i)
    curve.add(10.0 * static_cast<double>(i + 1), values[i]);
  return curve;
}

std::string html_of(const Curve& curve) {
  return curve_figure_html({"loss", Quantity::kPlain, {{"run", &curve, 0}}}, "f1");
}

/// The points of the path of this class, in tenths of a pixel.
std::vector<std::pair<int64_t, int64_t>> points_of(const std::string& html,
                                                   const std::string& kind) {
  const std::string begin = "<path class=\"" + kind + "\" d=\"";
  const size_t at = html.find(begin);
  if (at == std::string::npos) return {};
  const size_t from = at + begin.size();
  const std::string path = html.substr(from, html.find('"', from) - from);
  std::vector<std::pair<int64_t, int64_t>> points;
  char command = 0;
  const char* text = path.c_str();
  while (*text != '\0') {
    if (*text == 'M' || *text == 'l' || *text == 'z') command = *text++;
    if (command == 'z') continue;
    char* end = nullptr;
    const int64_t x = std::strtoll(text, &end, 10), y = std::strtoll(end, &end, 10);
    EXPECT_NE(end, text) << path;
    text = end;
    const bool is_relative = command == 'l';
    points.emplace_back(x + (is_relative ? points.back().first : 0),
                        y + (is_relative ? points.back().second : 0));
  }
  return points;
}

TEST(CurveFigure, DrawsEachPointInItsPlace) {
  const std::string html = html_of(curve_with({0, 1, 0.5}));
  EXPECT_EQ(markup_mistake(html), "");
  const auto points = points_of(html, "l0");
  ASSERT_EQ(points.size(), 3u);
  // Steps 10, 20, 30 of an axis from 0 to 30; the highest value is near the top.
  EXPECT_EQ(points[1].first - points[0].first, points[2].first - points[1].first);
  EXPECT_NEAR(points[0].first, 540 + 3360 / 3, 1);
  EXPECT_EQ(points[2].first, 3900);
  EXPECT_EQ(points[0].second, 1640);
  EXPECT_LT(points[1].second, 200);
  EXPECT_NEAR(points[2].second, (points[0].second + points[1].second) / 2, 1);
}

TEST(CurveFigure, IsNamedAndDescribed) {
  const std::string html = html_of(curve_with({2.5, 0.25, 0.5}));
  EXPECT_THAT(html, HasSubstr("role=\"img\" aria-labelledby=\"f1t\" aria-describedby=\"f1d\""));
  EXPECT_THAT(html, HasSubstr("<title id=\"f1t\">loss over steps</title>"));
  EXPECT_THAT(html,
              HasSubstr("<desc id=\"f1d\">2.5 at step 10, then 0.5 at step 30; lowest 0.25 at "
                        "step 20, highest 2.5 at step 10. </desc>"));
}

TEST(CurveFigure, LeavesGapsWhereValuesAreNotFinite) {
  const std::string html = html_of(curve_with({1, 2, std::nan(""), 3, INFINITY, 2}));
  EXPECT_EQ(markup_mistake(html), "");
  EXPECT_THAT(html, HasSubstr("2 values are not finite"));
  EXPECT_THAT(html, Not(::testing::ContainsRegex("nan|inf")));
  const size_t at = html.find("<path class=\"l0\"");
  EXPECT_EQ(count_of(html.substr(at, html.find("/>", at) - at), "M"), 3);
}

TEST(CurveFigure, ShowsMeanAndRangeOfManyPointsInBoundedSpace) {
  Curve curve("loss");
  for (int64_t i = 0; i < 100'000; ++i) {
    curve.add(static_cast<double>(i), i == 50'000 ? 9.0 : 1.0 + (i % 2));
  }
  const std::string html = html_of(curve);
  EXPECT_EQ(markup_mistake(html), "");
  EXPECT_LT(html.size(), 12'000u);
  EXPECT_LE(points_of(html, "l0").size(), 240u);
  const auto band = points_of(html, "b0");
  EXPECT_LE(band.size(), 480u);
  EXPECT_GT(band.size(), 100u);
  // The spike is within the band, near the top.
  EXPECT_LT(std::ranges::min(band, {}, &std::pair<int64_t, int64_t>::second).second, 200);
}

TEST(CurveFigure, HasALegendForSeveralCurves) {
  const Curve a = curve_with({1, 2}), b = curve_with({3, 4});
  const std::string html = curve_figure_html(
      {"x & y", Quantity::kPlain, {{"run <a>", &a, 0}, {"b", &b, 1}}, {20}}, "f2");
  EXPECT_EQ(markup_mistake(html), "");
  EXPECT_THAT(html, AllOf(HasSubstr("class=\"l0\""), HasSubstr("class=\"l1\""),
                          HasSubstr("<span class=\"key k0\"></span>run &lt;a&gt; <b>2</b>"),
                          HasSubstr("<span class=\"key k1\"></span>b <b>4</b>"),
                          HasSubstr("run &lt;a&gt;: 1 at step 10, then 2 at step 20. b: 3 at")));
  EXPECT_EQ(count_of(html, "class=\"mark\""), 1);
}

TEST(CurveFigure, TakesALogarithmicScaleForValuesFarApart) {
  EXPECT_THAT(html_of(curve_with({1000, 2, 1, 1.5, 1})), HasSubstr("loss (logarithmic)"));
  EXPECT_THAT(html_of(curve_with({1000, 2, 0, 1.5, 1})), Not(HasSubstr("logarithmic")));
  EXPECT_THAT(html_of(curve_with({4, 3, 2, 1})), Not(HasSubstr("logarithmic")));
}

TEST(CurveFigure, ShowsASinglePoint) {
  const std::string html = html_of(curve_with({0.5}));
  EXPECT_EQ(markup_mistake(html), "");
  EXPECT_THAT(html, AllOf(HasSubstr("class=\"l0 dot\""), HasSubstr("0.5 at step 10")));
}

}  // namespace
}  // namespace shoal
