#include "launch/pages/load_panel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace shoal {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

LoadHistory history(const std::vector<std::vector<double>>& load, int64_t memory_units = 0) {
  LoadHistory layer{"moe", {}, load, memory_units};
  for (size_t i = 0; i < load.size(); ++i) layer.steps.push_back(50 * static_cast<int64_t>(i + 1));
  return layer;
}

TEST(LoadPanel, HoldsSharesOverAnEvenOne) {
  const LoadPanel panel = make_load_panel(history({{7, 7, 7, 7}, {0, 2, 4, 10}}));
  EXPECT_THAT(panel.column_steps, ElementsAre(50, 100));
  EXPECT_THAT(panel.share[0], ElementsAre(1, 0));
  EXPECT_THAT(panel.share[3], ElementsAre(1, 2.5));
  EXPECT_FALSE(panel.has_both_kinds());
}

TEST(LoadPanel, KeepsExpertsAndMemoryUnitsInRowsOfTheirOwn) {
  const LoadPanel few = make_load_panel(history({{1, 2, 3, 4}}, 1));
  EXPECT_TRUE(few.has_both_kinds());
  EXPECT_EQ(few.num_expert_rows, 3u);
  EXPECT_EQ(few.num_rows(), 4u);
  EXPECT_THAT(few.share[3], ElementsAre(1.6));
  // 4 experts of load 3, 600 memory units of load 1: no row mixes them.
  std::vector<double> load(604, 1.0);
  for (size_t i = 0; i < 4; ++i) load[i] = 3.0;
  const LoadPanel many = make_load_panel(history({load}, 600));
  EXPECT_LE(many.num_rows(), 129u);
  ASSERT_GT(many.num_expert_rows, 0u);
  EXPECT_EQ(many.row_offsets[many.num_expert_rows], 4u);
  EXPECT_EQ(many.row_offsets.back(), 604u);
  const double even = (4 * 3.0 + 600) / 604;
  for (size_t row = 0; row < many.num_rows(); ++row) {
    const double expected = (row < many.num_expert_rows ? 3.0 : 1.0) / even;
    EXPECT_THAT(many.share[row], ElementsAre(DoubleNear(expected, 1e-9))) << row;
  }
}

TEST(LoadScale, EndsWhereTheDataEnd) {
  const auto limit_of = [](const std::vector<std::vector<double>>& load) {
    return LoadScale({make_load_panel(history(load))}).limit();
  };
  EXPECT_EQ(limit_of({{100, 101}}), 1.1);
  EXPECT_EQ(limit_of({{1, 1.8}}), 1.5);       // 0.71 and 1.29
  EXPECT_EQ(limit_of({{1, 3}}), 2.0);         // 0.5 and 1.5
  EXPECT_EQ(limit_of({{1, 1, 1, 1e6}}), 16);  // the last there is
  EXPECT_EQ(limit_of({{0, 0}}), 1.1);
  // One share in a thousand beyond the rest does not count.
  std::vector<std::vector<double>> load(200, std::vector<double>(10, 1.0));
  load[7][3] = 5.0;
  EXPECT_EQ(limit_of(load), 1.1);
}

TEST(LoadScale, IsCentredAtTheEvenShare) {
  const LoadScale scale(4.0);
  const int64_t middle = LoadScale::kLevels / 2;
  EXPECT_EQ(scale.level(1.0), middle);
  EXPECT_EQ(scale.level(4.0), LoadScale::kLevels - 1);
  EXPECT_EQ(scale.level(100.0), LoadScale::kLevels - 1);
  EXPECT_EQ(scale.level(0.25), 0);
  EXPECT_EQ(scale.level(2.0) - middle, middle - scale.level(0.5));
  EXPECT_EQ(scale.level(0.0), LoadScale::kNothing);
  EXPECT_EQ(hex_colour(LoadScale::colour(LoadScale::kNothing)), "#000000");
  const Rgb even = LoadScale::colour(middle);
  EXPECT_EQ(even[0], even[1]);
  EXPECT_EQ(even[1], even[2]);
  const Rgb less = LoadScale::colour(scale.level(0.5)), more = LoadScale::colour(scale.level(2.0));
  EXPECT_GT(less[2], less[0]);  // bluish
  EXPECT_GT(more[0], more[2]);  // reddish
}

TEST(LoadScale, NamesItsColours) {
  std::vector<std::string> labels;
  for (const ScaleTick& tick : LoadScale(4.0).ticks()) labels.push_back(tick.label);
  EXPECT_THAT(labels, ElementsAre("\u2264 0.25", "0.50", "1 (even)", "2.00", "\u2265 4.00"));
}

using Cell = std::pair<int64_t, int64_t>;  // row, column

/// Colour of the cell in a row and a column of load_picture, whose cells are of equal size.
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
    EXPECT_EQ(hex_colour(cell_of(picture, {0, unit}, cells)), "#eeeeee");
  }
  EXPECT_EQ(hex_colour(cell_of(picture, {1, 0}, cells)), "#000000");
  EXPECT_EQ(hex_colour(cell_of(picture, {1, 1}, cells)), hex_colour(blue_to_red(1.0)));
  EXPECT_GT(cell_of(picture, {2, 0}, cells)[0], cell_of(picture, {2, 0}, cells)[2]);  // reddish
  EXPECT_GT(cell_of(picture, {2, 1}, cells)[2], cell_of(picture, {2, 1}, cells)[0]);  // bluish
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
    ASSERT_EQ(hex_colour(pixel), "#eeeeee");
  }
}

}  // namespace
}  // namespace shoal
