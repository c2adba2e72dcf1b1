#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/pages/page.h"
#include "launch/report/load_map.h"
#include "tests/support/markup.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using testing::markup_mistake;
using ::testing::Not;

LayerLoads layer(const std::string& name, const std::vector<std::vector<double>>& load,
                 int64_t memory_units = 0) {
  LayerLoads layer{name, memory_units};
  for (size_t i = 0; i < load.size(); ++i)
    layer.load.add(10 * static_cast<int64_t>(i + 1), load[i]);
  return layer;
}

TEST(HeatMap, ColoursLoadsByTheirShareOverAnEvenOne) {
  // Two steps of four experts: all alike, then 0, 1/2, 1 and 5/2 of the mean; the scale ends at 3.
  const std::string svg = heat_map_svg("loads", {layer("moe", {{7, 7, 7, 7}, {0, 2, 4, 10}})});
  const LoadScale scale(3.0);
  Picture cells{2, 4, {}};
  for (const double share : {1.0, 0.0, 1.0, 0.5, 1.0, 1.0, 1.0, 2.5}) {
    cells.pixels.push_back(LoadScale::colour(scale.level(share)));
  }
  EXPECT_THAT(svg, HasSubstr(png_address(cells)));
  EXPECT_EQ(markup_mistake(svg), "");
}

TEST(HeatMap, HasOneScaleForAllLayers) {
  const std::string svg =
      heat_map_svg("loads", {layer("even", {{1, 1.01}}), layer("uneven", {{1, 7}})});
  EXPECT_THAT(svg, HasSubstr(">\u2265 4.00</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">\u2265 1.10</text>")));
}

TEST(HeatMap, NamesMemoryUnits) {
  EXPECT_THAT(heat_map_svg("loads", {layer("nexus", {{1, 2, 3, 4}}, 2)}),
              HasSubstr(">memory units</text>"));
  EXPECT_THAT(heat_map_svg("loads", {layer("moe", {{1, 2, 3, 4}})}),
              Not(HasSubstr("memory units")));
}

TEST(HeatMap, NamesItsLayersAxesAndColours) {
  const std::string svg =
      heat_map_svg("a & <b>", {layer("blocks.1", {{1, 2}, {2, 1}}), layer("blocks.3", {{1}})});
  EXPECT_EQ(markup_mistake(svg), "");
  for (const char* text :
       {">blocks.1</text>", ">blocks.3</text>", ">a &amp; &lt;b&gt;</text>", ">logged step</text>",
        ">unit</text>", ">1 (even)</text>", ">\u2265 1.50</text>", ">10</text>", ">20</text>"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(HeatMap, TakesLayersWithoutTokensAndWithoutExperts) {
  EXPECT_THAT(heat_map_svg("", {layer("moe", {{0, 0}})}),
              HasSubstr(png_address({1, 2, {Rgb{0, 0, 0}, Rgb{0, 0, 0}}})));
  EXPECT_EQ(markup_mistake(heat_map_svg("", {layer("moe", {{}})})), "");
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
