#include "sparse/linear_regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace shoal {
namespace {

using ::testing::ElementsAre;

std::vector<RegionLayer> three_layers(std::optional<int64_t> span) {
  return {{8, span}, {8, span}, {8, span}};
}

// Inputs 4, widths 8: sum_{j <= 4} C(8, j) = 163, with two directions 1 + 8 + 28 = 37.
TEST(LinearRegions, AreThoseOfThePapersExample) {
  const RegionBound dense = bound_regions(4, three_layers({}), RegionMixing::kNone);
  EXPECT_NEAR(std::pow(10.0, dense.log10_regions), 4330747.0, 1e-3);
  EXPECT_EQ(dense.layers_to_catch_up, 1);
  const RegionBound blocks = bound_regions(4, three_layers(2), RegionMixing::kNone);
  EXPECT_NEAR(std::pow(10.0, blocks.log10_regions), 50653.0, 1e-6);
  EXPECT_THAT(blocks.directions, ElementsAre(2, 2, 2));
  EXPECT_EQ(blocks.layers_to_catch_up, std::nullopt);
  const RegionBound mixed = bound_regions(4, three_layers(2), RegionMixing::kPermuted);
  EXPECT_NEAR(std::pow(10.0, mixed.log10_regions), 983053.0, 1e-3);
  EXPECT_THAT(mixed.directions, ElementsAre(2, 4, 4));
  EXPECT_EQ(mixed.layers_to_catch_up, 2);
}

// ViT-L/16 at 95 %: the MLPs' 1024 inputs have 52 diagonals, their 4096 have 205; 257 directions a
// block, so that four blocks of two layers reach 1024.
TEST(LinearRegions, CatchUpInFourBlocksOfVitL) {
  std::vector<RegionLayer> layers;
  for (int block = 0; block < 24; ++block) {
    layers.push_back({4096, 52});
    layers.push_back({1024, 205});
  }
  const RegionBound mixed = bound_regions(1024, layers, RegionMixing::kPermuted);
  ASSERT_TRUE(mixed.layers_to_catch_up.has_value());
  EXPECT_EQ((*mixed.layers_to_catch_up + 1) / 2, 4);
  EXPECT_EQ(bound_regions(1024, layers, RegionMixing::kNone).layers_to_catch_up, std::nullopt);
  const RegionBound dense = bound_regions(1024, {{4096}, {1024}}, RegionMixing::kNone);
  EXPECT_TRUE(std::isfinite(dense.log10_regions));
  EXPECT_NEAR(bound_regions(8, {{8}}, RegionMixing::kNone).log10_regions, 8 * std::log10(2.0),
              1e-9);
}

}  // namespace
}  // namespace shoal
