#include "launch/report/load_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace shoal {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

ListHistory history(const std::vector<std::vector<double>>& load) {
  ListHistory list;
  for (size_t i = 0; i < load.size(); ++i) list.add(50 * static_cast<int64_t>(i + 1), load[i]);
  return list;
}

std::vector<HeatRow> shares(const std::vector<std::vector<double>>& load, size_t split = 0) {
  return list_rows(history(load), "unit", split, /*is_load=*/true);
}

TEST(ListRows, HoldSharesOverAnEvenOneOrMeans) {
  const std::vector<HeatRow> rows = shares({{7, 7, 7, 7}, {0, 2, 4, 10}});
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_THAT(rows[0].end, ElementsAre(50, 100));
  EXPECT_THAT(rows[0].begin, ElementsAre(50, 100));
  EXPECT_THAT(rows[0].value, ElementsAre(1, 0));
  EXPECT_THAT(rows[3].value, ElementsAre(1, 2.5));
  EXPECT_EQ(rows[3].name, "unit 3");
  const auto means = list_rows(history({{0.5, 0.25}, {1.0, 0.75}}), "part", 0, /*is_load=*/false);
  EXPECT_THAT(means[1].value, ElementsAre(0.25, 0.75));
}

TEST(ListRows, AverageNeighboursOfManyButNotAcrossTheSplit) {
  // 4 experts of load 3, 600 memory units of load 1: no row mixes them.
  std::vector<double> load(604, 1.0);
  for (size_t i = 0; i < 4; ++i) load[i] = 3.0;
  const std::vector<HeatRow> rows = shares({load}, 4);
  EXPECT_LE(rows.size(), 129u);
  EXPECT_EQ(rows[0].name, "unit 0 to 3");
  EXPECT_EQ(rows[1].label, "4");
  EXPECT_EQ(rows.back().name, "unit 599 to 603");
  const double even = (4 * 3.0 + 600) / 604;
  for (size_t row = 0; row < rows.size(); ++row) {
    EXPECT_THAT(rows[row].value, ElementsAre(DoubleNear((row == 0 ? 3.0 : 1.0) / even, 1e-9)));
  }
}

TEST(ListRows, AverageNeighbouringStepsOfMany) {
  std::vector<std::vector<double>> swing;  // between 0 and twice the even load
  for (int64_t step = 0; step < 400; ++step) {
    swing.push_back(step % 2 == 0 ? std::vector<double>{0, 2} : std::vector<double>{2, 0});
  }
  const std::vector<HeatRow> rows = shares(swing);
  EXPECT_LE(rows[0].value.size(), 200u);
  EXPECT_THAT(rows[0].value, ::testing::Each(1.0));
  EXPECT_EQ(rows[0].end.back(), 20'000);
}

TEST(LoadScale, EndsWhereTheDataEnd) {
  const auto limit_of = [](const std::vector<std::vector<double>>& load) {
    return LoadScale({shares(load)}).limit();
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
