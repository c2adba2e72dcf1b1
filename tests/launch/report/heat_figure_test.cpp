#include "launch/report/heat_figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "launch/pages/page.h"
#include "tests/support/markup.h"

namespace shoal {
namespace {

using testing::count_of;
using ::testing::HasSubstr;
using testing::markup_mistake;

LoadPanel panel_of(const std::vector<std::vector<double>>& load, int64_t memory_units = 0) {
  LoadHistory history{"blocks.1 <moe>", {}, load, memory_units};
  for (size_t i = 0; i < load.size(); ++i)
    history.steps.push_back(10 * static_cast<int64_t>(i + 1));
  return make_load_panel(history);
}

/// Address of a picture of these pixels in the page.
std::string address_of(int64_t width, const std::vector<Rgb>& pixels) {
  return png_address({width, static_cast<int64_t>(pixels.size()) / width, pixels});
}

TEST(LoadFigure, HasAPixelForEachUnitAndStep) {
  const LoadScale scale(2.0);
  const auto colour = [&](double share) { return LoadScale::colour(scale.level(share)); };
  const std::string html = load_figure_html(panel_of({{1, 1}, {1, 3}}), scale, "unit", "f7");
  EXPECT_EQ(markup_mistake(html), "");
  EXPECT_THAT(html, HasSubstr(address_of(2, {colour(1), colour(0.5), colour(1), colour(1.5)})));
  EXPECT_THAT(html, HasSubstr("<title id=\"f7t\">blocks.1 &lt;moe&gt; over steps</title>"));
  EXPECT_THAT(html, HasSubstr("2 rows. At step 20, unit 1 has the largest load, 1.50 times an even "
                              "share, and unit 0 the smallest, 0.50 times."));
  EXPECT_THAT(html, HasSubstr(">20</text>"));
}

TEST(LoadFigure, IsGreyWhereNothingIsKnown) {
  const LoadScale scale(2.0);
  const Rgb even = LoadScale::colour(scale.level(1)), grey{128, 128, 128};
  const std::string html =
      load_figure_html(panel_of({{1, 1}, {}, {2, 2}, {}}), scale, "unit", "f1");
  EXPECT_EQ(markup_mistake(html), "");
  EXPECT_THAT(html, HasSubstr(address_of(4, {even, grey, even, grey, even, grey, even, grey})));
  EXPECT_THAT(html, HasSubstr("At step 30, unit 0 has the largest load, 1.00 times"));
  EXPECT_THAT(html, HasSubstr("grey: nothing was logged"));
}

TEST(LoadFigure, SetsMemoryUnitsApart) {
  const std::string html =
      load_figure_html(panel_of({{1, 2, 3, 4}}, 2), LoadScale(2.0), "unit", "f1");
  EXPECT_EQ(markup_mistake(html), "");
  EXPECT_EQ(count_of(html, "<image "), 2);
  EXPECT_THAT(html, HasSubstr("above the gap experts, below it memory units (2 to 3)"));
  // All are memory units, or none: one picture, and nothing to tell apart.
  EXPECT_EQ(
      count_of(load_figure_html(panel_of({{1, 2}}, 2), LoadScale(2.0), "unit", "f1"), "<image "),
      1);
}

TEST(LoadLegend, TellsColoursInWordsToo) {
  const std::string html = load_legend_html(LoadScale(3.0), "Rows & colours.");
  EXPECT_EQ(markup_mistake(html), "");
  EXPECT_THAT(html, HasSubstr("Rows &amp; colours. Black is zero."));
  EXPECT_THAT(html, HasSubstr("aria-label=\"Colours from blue, \u2264 0.33, over light grey, 1 "
                              "(even), to red, \u2265 3.00; black is zero\""));
}

TEST(GridFigure, GoesFromTheSmallestToTheLargestAndLeavesGaps) {
  const ValueGrid grid{"rate",          "layer", {"1", "2"}, 20, {{0.2, 0.4}, {0.6, std::nan("")}},
                       Quantity::kShare};
  const std::string html = grid_figure_html(grid, "f3");
  EXPECT_EQ(markup_mistake(html), "");
  const Rgb grey{128, 128, 128};
  EXPECT_THAT(html, HasSubstr(address_of(
                        2, {viridis(0), viridis(std::round(63 * 0.5) / 63), viridis(1), grey})));
  EXPECT_THAT(html, HasSubstr("2 rows, one a layer; from 20.0 % to 60.0 %."));
  EXPECT_THAT(html, HasSubstr(">20.0 %</span>"));
  EXPECT_THAT(html, HasSubstr("text-anchor=\"end\">20</text>"));
  EXPECT_THAT(html, HasSubstr("grey: nothing was logged"));
}

TEST(GridFigure, TakesAScaleThatOthersHave) {
  ValueGrid grid{"rate", "layer", {"1", "2"}, 1, {{0.5}, {0.25}}, Quantity::kShare};
  grid.scale = ValueRange{0, 1};
  const std::string html = grid_figure_html(grid, "f3");
  EXPECT_EQ(markup_mistake(html), "");
  EXPECT_THAT(html, HasSubstr(address_of(1, {viridis(std::round(63 * 0.5) / 63),
                                             viridis(std::round(63 * 0.25) / 63)})));
  EXPECT_THAT(html, HasSubstr("Colours from dark, 0 %, to bright, 100.0 %"));
  EXPECT_THAT(html,
              HasSubstr("from 25.0 % to 50.0 %. At the last step, 25.0 % in row '2' to 50.0 % in "
                        "row '1'."));
}

}  // namespace
}  // namespace shoal
