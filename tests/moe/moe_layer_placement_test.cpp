#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/moe_layer_fixture.h"

namespace shoal {
namespace {

using testing::difference;
using testing::layer_cases;
using testing::LayerCase;
using testing::LayerResult;
using testing::run_layer_on;

TEST(MoeLayerRanks, UnitsThatWerePlacedByLoadGiveTheSameResults) {
  for (LayerCase test : {layer_cases()[1], layer_cases()[5]}) {
    const LayerResult serial = run_layer_on(test, 1, 1);
    // Unit 3 goes to the first rank: no runs of neighbours.
    test.placement = PlacementRule::kByLoad;
    test.unit_load = {{"blocks.1.moe_c", {5, 4, 2, 10}}};
    for (const auto& [expert_ranks, replicas] : {std::pair{2, 1}, std::pair{3, 1}, {2, 2}}) {
      const LayerResult parallel = run_layer_on(test, expert_ranks, replicas);
      const testing::Difference worst = difference(parallel, serial);
      EXPECT_LT(worst.value, 1e-12)
          << test.name << " on " << expert_ranks << " x " << replicas << ": " << worst.where;
      EXPECT_TRUE(torch::equal(parallel.stats.narrow(0, 0, 7), serial.stats.narrow(0, 0, 7)));
    }
  }
}

TEST(MoeLayerRanks, ByLoadTakesTheLoadsThatWereLoggedForItsPath) {
  LayerCase test = layer_cases()[0];
  test.placement = PlacementRule::kByLoad;
  test.unit_load = {{"blocks.1.moe_c", {5, 4, 2, 10}}, {"blocks.2.moe_c", {9, 1, 1, 1}}};
  testing::run_grid(3, 1, [&](RankGrid& grid) {
    const int64_t own = grid.world->rank() == 0 ? test.num_samples : 0;
    const UnitPlacement placement = testing::run_layer(test, 0, own, grid).placement;
    EXPECT_THAT(placement.units_of_rank(0), ::testing::ElementsAre(3));
    EXPECT_THAT(placement.units_of_rank(1), ::testing::ElementsAre(0));
    EXPECT_THAT(placement.units_of_rank(2), ::testing::ElementsAre(1, 2));
  });
}

}  // namespace
}  // namespace shoal
