#include "launch/pages/heat_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <utility>

#include "tests/support/markup.h"

namespace shoal {
namespace {

using testing::count_of;
using ::testing::HasSubstr;
using testing::markup_mistake;
using ::testing::Not;
using Cell = std::pair<int64_t, int64_t>;  // row, column

/// The colours of the cells of an SVG with one panel. A cell drawn twice fails the test.
std::map<Cell, std::string> cells_of(const std::string& svg) {
  std::map<Cell, std::string> cells;
  const std::string fill = "<path fill=\"", draw = "\" d=\"";
  const std::regex run(R"(M(\d+) (\d+)h(\d+)v1h-(\d+)z)");
  for (size_t at = svg.find(fill); at != std::string::npos; at = svg.find(fill, at + 1)) {
    const std::string colour = svg.substr(at + fill.size(), 7);
    EXPECT_TRUE(std::regex_match(colour, std::regex("#[0-9a-f]{6}"))) << colour;
    const size_t end_colour = at + fill.size() + colour.size();
    EXPECT_EQ(svg.substr(end_colour, draw.size()), draw);
    const size_t begin_moves = end_colour + draw.size();
    const std::string moves = svg.substr(begin_moves, svg.find('"', begin_moves) - begin_moves);
    for (std::sregex_iterator r(moves.begin(), moves.end(), run), last; r != last; ++r) {
      EXPECT_EQ((*r)[3], (*r)[4]);
      const int64_t begin = std::stoll((*r)[1]), length = std::stoll((*r)[3]);
      for (int64_t column = begin; column < begin + length; ++column) {
        EXPECT_TRUE(cells.insert({{std::stoll((*r)[2]), column}, colour}).second);
      }
    }
  }
  return cells;
}

std::string svg_of(const std::vector<std::vector<double>>& load) {
  LoadHistory layer{"blocks.1.moe_c", {}, load};
  for (size_t i = 0; i < load.size(); ++i) layer.steps.push_back(50 * static_cast<int64_t>(i + 1));
  return heat_map_svg("loads", {layer});
}

TEST(HeatMap, ColoursLoadsByTheirShareOverAnEvenOne) {
  // Two steps of four experts: all alike, then 0, 1/2, 1 and 5/2 of the mean; the scale ends at 3.
  const auto cells = cells_of(svg_of({{7, 7, 7, 7}, {0, 2, 4, 10}}));
  ASSERT_EQ(cells.size(), 8u);
  const LoadScale scale(3.0);
  const auto colour = [&](double share) { return hex_colour(scale.colour(scale.level(share))); };
  for (int64_t row = 0; row < 4; ++row) EXPECT_EQ(cells.at({row, 0}), colour(1));
  EXPECT_EQ(cells.at({0, 1}), "#000000");
  EXPECT_EQ(cells.at({1, 1}), colour(0.5));
  EXPECT_EQ(cells.at({2, 1}), colour(1));
  EXPECT_EQ(cells.at({3, 1}), colour(2.5));
}

TEST(HeatMap, HasOneScaleForAllLayers) {
  const std::string svg =
      heat_map_svg("loads", {{"even", {10}, {{1, 1.01}}}, {"uneven", {10}, {{1, 7}}}});
  EXPECT_THAT(svg, HasSubstr(">\u2265 4.00</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">\u2265 1.10</text>")));
}

TEST(HeatMap, SetsMemoryUnitsApartFromExperts) {
  const LoadHistory mixed{"nexus", {10}, {{1, 2, 3, 4}}, 2};
  const std::string svg = heat_map_svg("loads", {mixed});
  EXPECT_EQ(markup_mistake(svg), "");
  EXPECT_THAT(svg, HasSubstr(">experts</text>"));
  EXPECT_THAT(svg, HasSubstr(">memory units</text>"));
  EXPECT_THAT(svg_of({{1, 2, 3, 4}}), Not(HasSubstr(">experts</text>")));
  // A frame around each, with a gap between.
  const auto count = [](const std::string& text) { return count_of(text, "fill=\"none\""); };
  EXPECT_EQ(count(svg), 2);
  EXPECT_EQ(count(svg_of({{1, 2, 3, 4}})), 1);
}

TEST(HeatMap, AveragesNeighboursWhereThereIsMuch) {
  std::vector<std::vector<double>> load;
  for (int64_t step = 0; step < 1000; ++step) {
    load.emplace_back();
    for (int64_t expert = 0; expert < 600; ++expert) {
      load.back().push_back(static_cast<double>((step * 7919 + expert * 104729) % 997));
    }
  }
  const std::string svg = svg_of(load);
  const auto cells = cells_of(svg);
  EXPECT_EQ(cells.size(), 200u * 128u);
  EXPECT_EQ(cells.rbegin()->first, (Cell{127, 199}));
  EXPECT_LT(svg.size(), 600'000u);
  EXPECT_THAT(svg, HasSubstr(">50000</text>"));  // the last step
  // 400 steps that swing between 0 and twice the even load: even in the mean.
  std::vector<std::vector<double>> swing;
  for (int64_t step = 0; step < 400; ++step) {
    swing.push_back(step % 2 == 0 ? std::vector<double>{0, 2} : std::vector<double>{2, 0});
  }
  const std::string even = cells_of(svg_of({{1, 1}})).at({0, 0});
  for (const auto& [cell, colour] : cells_of(svg_of(swing))) EXPECT_EQ(colour, even);
}

TEST(HeatMap, NamesItsLayersAxesAndColours) {
  const std::string svg = heat_map_svg(
      "a & <b>", {{"blocks.1", {10, 20}, {{1, 2}, {2, 1}}}, {"blocks.3", {10}, {{1}}}});
  EXPECT_EQ(markup_mistake(svg), "");
  for (const char* text :
       {">blocks.1</text>", ">blocks.3</text>", ">a &amp; &lt;b&gt;</text>", ">logged step</text>",
        ">unit</text>", ">1 (even)</text>", ">\u2265 1.50</text>", ">10</text>", ">20</text>"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(HeatMap, TakesLayersWithoutTokensAndWithoutExperts) {
  EXPECT_EQ(cells_of(svg_of({{0, 0}})).at({1, 0}), "#000000");
  EXPECT_EQ(markup_mistake(svg_of({{}})), "");
}

TEST(HeatMap, WellFormedMeansWhatItSays) {
  EXPECT_EQ(markup_mistake("<a b=\"c > d\"><d/><br></a>\n"), "");
  EXPECT_NE(markup_mistake("<a><d></a></d>\n"), "");
  EXPECT_NE(markup_mistake("<a> & </a>\n"), "");
  EXPECT_NE(markup_mistake("<a> > </a>\n"), "");
  EXPECT_NE(markup_mistake("<a>\n"), "");
}

}  // namespace
}  // namespace shoal
