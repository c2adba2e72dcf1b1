#include "launch/report/heat_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <utility>

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Cell = std::pair<int64_t, int64_t>;  // row, column

/// Without what stands between quotes, if no markup does: std::regex takes a stack frame for each
/// character of it.
std::string without_values(const std::string& svg) {
  std::string rest;
  bool is_value = false;
  for (const char c : svg) {
    if (c == '"') is_value = !is_value;
    const bool is_text = c != '"' && c != '<' && c != '&';
    if (!is_value || !is_text) rest += c;
  }
  return rest;
}

/// Whether every tag is closed in order and no markup stands in texts and attributes.
bool is_well_formed(const std::string& document) {
  const std::string svg = without_values(document);
  const std::regex tag(R"(<(\?[^?]*\?|/?)([a-z]*)((?:\s+[A-Za-z-]+(?::[a-z]+)?="")*)\s*(/?)>)");
  std::vector<std::string> open;
  size_t end = 0;
  for (std::sregex_iterator i(svg.begin(), svg.end(), tag), last; i != last; ++i) {
    std::string text = svg.substr(end, static_cast<size_t>(i->position()) - end);
    text = std::regex_replace(text, std::regex("&(amp|lt|gt|quot);"), "");
    if (text.find_first_of("<>&") != std::string::npos) return false;
    end = static_cast<size_t>(i->position() + i->length());
    if ((*i)[1].str().starts_with("?") || (*i)[4] == "/") continue;
    if ((*i)[1] == "/") {
      if (open.empty() || open.back() != (*i)[2]) return false;
      open.pop_back();
    } else {
      open.push_back((*i)[2]);
    }
  }
  return open.empty() && end > 0 && svg.substr(end) == "\n";
}

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

/// Of the sRGB colour, relative: enough to order colours.
double lightness(const std::string& colour) {
  const auto channel = [&](size_t at) {
    return std::pow(std::stoi(colour.substr(at, 2), nullptr, 16) / 255.0, 2.2);
  };
  return 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5);
}

TEST(HeatMap, ColoursLoadsByTheirShareOverAnEvenOneBrighterIsMore) {
  // Two steps of four experts: all alike, then 0, 1/2, 1 and 5/2 of the mean.
  const auto cells = cells_of(svg_of({{7, 7, 7, 7}, {0, 2, 4, 10}}));
  ASSERT_EQ(cells.size(), 8u);
  for (int64_t row = 1; row < 4; ++row) EXPECT_EQ(cells.at({row, 0}), cells.at({0, 0}));
  EXPECT_EQ(cells.at({2, 1}), cells.at({0, 0}));
  EXPECT_EQ(cells.at({0, 1}), "#000000");
  for (int64_t row = 1; row < 4; ++row) {
    EXPECT_LT(lightness(cells.at({row - 1, 1})), lightness(cells.at({row, 1}))) << row;
  }
}

TEST(HeatMap, EndsItsScaleAtAQuarterAndFourTimesTheEvenShare) {
  const auto uneven =
      cells_of(svg_of({{1, 99, 99, 99, 99, 99, 99, 99}, {90, 1, 1, 1, 1, 1, 1, 1}}));
  EXPECT_EQ(uneven.at({0, 0}), "#440154");
  EXPECT_EQ(uneven.at({0, 1}), "#fde725");
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
  EXPECT_TRUE(is_well_formed(svg));
  for (const char* text :
       {">blocks.1</text>", ">blocks.3</text>", ">a &amp; &lt;b&gt;</text>", ">logged step</text>",
        ">unit</text>", ">1 (even)</text>", ">4 or more</text>", ">10</text>", ">20</text>"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(HeatMap, TakesLayersWithoutTokensAndWithoutExperts) {
  EXPECT_EQ(cells_of(svg_of({{0, 0}})).at({1, 0}), "#000000");
  EXPECT_TRUE(is_well_formed(svg_of({{}})));
}

TEST(HeatMap, WellFormedMeansWhatItSays) {
  EXPECT_TRUE(is_well_formed("<a b=\"c\"><d/></a>\n"));
  EXPECT_FALSE(is_well_formed("<a><d></a></d>\n"));
  EXPECT_FALSE(is_well_formed("<a> & </a>\n"));
  EXPECT_FALSE(is_well_formed("<a>\n"));
}

/// Of the cell in a row and a column of load_picture, whose cells are of equal size.
Rgb cell_of(const Picture& picture, const Cell& cell, const Cell& cells) {
  const int64_t height = picture.height / cells.first, width = picture.width / cells.second;
  return picture.pixels.at(static_cast<size_t>((cell.first * height + height / 2) * picture.width +
                                               cell.second * width + width / 2));
}

TEST(LoadPicture, HasARowForEachLayerAndACellForEachUnit) {
  const Picture picture = load_picture({{1, 1, 1, 1}, {0, 8, 0, 0}, {3, 1}});
  const Cell cells{3, 4};
  EXPECT_EQ(picture.width, 512);
  EXPECT_EQ(picture.height, 3 * 128);
  for (int64_t unit = 0; unit < 4; ++unit) {
    EXPECT_EQ(hex_colour(cell_of(picture, {0, unit}, cells)), hex_colour(viridis(32.0 / 63)));
  }
  EXPECT_EQ(hex_colour(cell_of(picture, {1, 0}, cells)), "#000000");
  EXPECT_EQ(hex_colour(cell_of(picture, {1, 1}, cells)), hex_colour(viridis(1.0)));
  EXPECT_GT(cell_of(picture, {2, 0}, cells)[1], cell_of(picture, {2, 1}, cells)[1]);
  EXPECT_EQ(hex_colour(cell_of(picture, {2, 2}, cells)), "#ffffff");
}

TEST(LoadPicture, AveragesNeighboursOfManyLayersAndUnits) {
  std::vector<std::vector<double>> load(256, std::vector<double>(512, 0.0));
  for (auto& layer : load) {
    for (size_t unit = 0; unit < layer.size(); unit += 2) layer[unit] = 7;
  }
  const Picture picture = load_picture(load);
  EXPECT_EQ(picture.width, 2 * 256);
  EXPECT_EQ(picture.height, 2 * 128);
  for (const Rgb& pixel : picture.pixels) {
    ASSERT_EQ(hex_colour(pixel), hex_colour(viridis(32.0 / 63)));
  }
}

}  // namespace
}  // namespace shoal
