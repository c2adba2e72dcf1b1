#include "moe/build_context.h"

#include <gtest/gtest.h>

#include "tests/support/ranks.h"

namespace shoal {
namespace {

using Ids = std::vector<int64_t>;

BuildContext by_load(RankGrid& grid, const UnitLoads& loads) {
  BuildContext context;
  context.grid = &grid;
  context.placement = PlacementRule::kByLoad;
  context.unit_load = loads;
  return context;
}

TEST(BuildContext, ByLoadTakesTheLoggedLoadOfTheLayer) {
  testing::run_grid(2, 1, [](RankGrid& grid) {
    BuildContext context = by_load(grid, {{"blocks.1.moe", {5, 1, 1, 9}}, {"short", {1, 9}}});
    EXPECT_EQ(placement_rule(context, "blocks.1.moe")({1, 1, 1, 1}).units_of_rank(0), Ids{3});
    EXPECT_EQ(placement_rule(context, "blocks.2.moe")({1, 1, 1, 1}).units_of_rank(0), (Ids{0, 1}));
    // Of another model: the run that it was logged by cannot be resumed with this one.
    EXPECT_EQ(placement_rule(context, "short")({1, 1, 1, 1}).units_of_rank(0), (Ids{0, 1}));
    context.placement = PlacementRule::kByCost;
    EXPECT_EQ(placement_rule(context, "blocks.1.moe")({1, 1, 9}).units_of_rank(0), Ids{2});
  });
}

TEST(BuildContext, ByLoadSpreadsUnitsWithoutLoad) {
  testing::run_grid(4, 1, [](RankGrid& grid) {
    const BuildContext context = by_load(grid, {{"blocks.1.moe", {9, 0, 0, 0}}});
    const UnitPlacement placement = placement_rule(context, "blocks.1.moe")({1, 1, 1, 1});
    for (int64_t rank = 0; rank < 4; ++rank) EXPECT_EQ(placement.units_of_rank(rank), Ids{rank});
  });
}

}  // namespace
}  // namespace shoal
