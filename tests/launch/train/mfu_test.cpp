#include "launch/train/mfu.h"

#include <gtest/gtest.h>

#include "parallel/comm/communicator.h"
#include "tests/support/ranks.h"

namespace shoal {
namespace {

/// Statistics of a layer whose tokens made ten choices.
MoeStats choices(const std::string& layer, int64_t kept) {
  StatSums sums;
  sums.load_U = torch::full({2}, 5.0, torch::kFloat64);
  sums.tokens = sums.choices = 10;
  sums.kept = torch::tensor(kept);
  return make_stats(layer, UnitPlacement::contiguous(2, 1), sums);
}

ModelWork work_of_two_layers() {
  ModelWork work;
  work.training_flops = 100;
  work.routed_training_flops = {{"a", 40}, {"b", 20}};
  return work;
}

TEST(ComputedWork, LeavesOutDroppedChoicesOfAllSteps) {
  const ModelWork work = work_of_two_layers();
  const auto world = make_self_communicator();
  ComputedWork computed(work, *world);
  computed.add({choices("a", 10), choices("b", 10)});
  EXPECT_DOUBLE_EQ(computed.take_share(), 1.0);
  computed.add({choices("a", 5), choices("b", 10)});
  computed.add({choices("a", 10), choices("b", 0)});
  // A quarter of 40, half of 20.
  EXPECT_DOUBLE_EQ(computed.take_share(), 0.8);
  EXPECT_DOUBLE_EQ(computed.steps(), 1.0 + 2 * 0.8);
  EXPECT_DOUBLE_EQ(computed.take_share(), 1.0);
  EXPECT_DOUBLE_EQ(computed.steps(), 1.0 + 2 * 0.8);
}

TEST(ComputedWork, IsThatOfAllRanks) {
  const ModelWork work = work_of_two_layers();
  testing::run_grid(2, 1, [&](RankGrid& grid) {
    ComputedWork computed(work, *grid.world);
    computed.add({choices("a", grid.world->rank() == 0 ? 10 : 0), choices("b", 10)});
    EXPECT_DOUBLE_EQ(computed.take_share(), 0.8);
  });
}

TEST(ComputedWork, OfADenseModelIsAllOfIt) {
  ModelWork work;
  work.training_flops = 100;
  const auto world = make_self_communicator();
  ComputedWork computed(work, *world);
  computed.add({});
  EXPECT_DOUBLE_EQ(computed.take_share(), 1.0);
  EXPECT_DOUBLE_EQ(computed.steps(), 1.0);
}

}  // namespace
}  // namespace shoal
