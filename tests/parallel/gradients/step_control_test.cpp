#include "parallel/gradients/step_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/error.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/ranks.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_owning_ranks;

std::string mismatch_of(StepControl& control) {
  try {
    control.agree({});
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

TEST(StepControlRanks, NamesBothSidesWhenARankSkippedACall) {
  run_owning_ranks(3, [](std::unique_ptr<Communicator> world) {
    RankGrid grid = make_rank_grid(std::move(world), 3);
    // Communicators of one rank: their calls need no peers, so a rank can skip one.
    StepControl control(grid);
    EXPECT_EQ(mismatch_of(control), "");
    if (grid.world->rank() != 2) all_reduce(*grid.replica, torch::zeros({1}));
    EXPECT_THAT(mismatch_of(control),
                AllOf(HasSubstr("rank 0:"), HasSubstr("replica: 1 all_reduce"),
                      HasSubstr("rank 2:"), HasSubstr("replica: 0 all_reduce")));
  });
}

TEST(StepControlRanks, WatchesGroupsOfNodesAndTheSumsOfGradients) {
  for (const std::string name : {"intra_node", "inter_node", "gradients"}) {
    run_owning_ranks(2, [&](std::unique_ptr<Communicator> world) {
      RankGrid grid = make_rank_grid(std::move(world), 1);
      // Groups of one rank: their calls need no peers.
      const auto alone = [&] { return grid.world->split(grid.world->rank(), 0); };
      const auto sums = alone();
      grid.intra_node = alone();
      grid.inter_node = alone();
      StepControl control(grid, {sums.get()});
      EXPECT_EQ(mismatch_of(control), "");
      Communicator& watched = name == "intra_node"   ? *grid.intra_node
                              : name == "inter_node" ? *grid.inter_node
                                                     : *sums;
      if (grid.world->rank() == 0) all_reduce(watched, torch::zeros({1}));
      EXPECT_THAT(mismatch_of(control),
                  AllOf(HasSubstr(name + ": 1 all_reduce"), HasSubstr(name + ": 0 all_reduce")));
    });
  }
}

TEST(StepControlRanks, SeesAnotherOrderOfTheSameCalls) {
  run_owning_ranks(2, [](std::unique_ptr<Communicator> world) {
    RankGrid grid = make_rank_grid(std::move(world), 2);
    StepControl control(grid);
    const torch::Tensor buffer = torch::zeros({1});
    if (grid.world->rank() == 0) broadcast(*grid.replica, buffer, 0);
    all_reduce(*grid.replica, buffer);
    if (grid.world->rank() == 1) broadcast(*grid.replica, buffer, 0);
    EXPECT_THAT(mismatch_of(control), HasSubstr("order"));
  });
}

TEST(StepControlRanks, SeesACallOfOneGroupThatComesBeforeAnothers) {
  run_owning_ranks(2, [](std::unique_ptr<Communicator> world) {
    RankGrid grid = make_rank_grid(std::move(world), 1);
    const auto sums = grid.world->split(0, grid.world->rank(), Traffic::kGradients);
    StepControl control(grid, {sums.get()});
    EXPECT_EQ(mismatch_of(control), "");
    // Both groups have seen the same calls, which threads and MPI can do in any order.
    const bool is_first = grid.world->rank() == 0;
    Pending early =
        (is_first ? *grid.replica : *sums).start_all_reduce(torch::ones({1}), ReduceOp::kSum);
    Pending late =
        (is_first ? *sums : *grid.replica).start_all_reduce(torch::ones({1}), ReduceOp::kSum);
    early.wait();
    late.wait();
    EXPECT_THAT(mismatch_of(control), HasSubstr("order of all groups' calls"));
  });
}

TEST(StepControlRanks, AddsSquaresInOneOrderOnAllRanks) {
  // In rank order 1 + 2^-53 + 2^-53 would stay 1; in pairs the small ones add up first.
  const double small = std::exp2(-53);
  for (const int64_t size : {1, 2, 3, 4, 7}) {
    run_owning_ranks(size, [&](std::unique_ptr<Communicator> world) {
      RankGrid grid = make_rank_grid(std::move(world), 1);
      StepControl control(grid);
      StepFlags own;
      own.square_sum = grid.world->rank() < 2 ? 0.5 : small;
      const double expected = size == 1   ? 0.5
                              : size == 4 ? 1 + 2 * small
                              : size == 7 ? 1 + 4 * small
                                          : 1.0;
      EXPECT_EQ(control.agree(own).square_sum, expected) << size;
    });
  }
}

TEST(StepControl, KeepsNegativeAndLargeSteps) {
  RankGrid grid = make_rank_grid(make_self_communicator(), 1);
  StepControl control(grid);
  for (const int64_t step : {int64_t{-1}, int64_t{0}, int64_t{1} << 62}) {
    StepFlags own;
    own.written_step = step;
    EXPECT_EQ(control.agree(own).written_step, step);
  }
}

TEST(StepControl, AgreesOnNothingWhenSumsOfGradientsHaveFailed) {
  RankGrid grid = testing::self_grid();
  const testing::FailedCommunicator sums(make_self_communicator());
  StepControl control(grid, {&sums});
  EXPECT_THROW(control.throw_if_failed(), CommError);
  EXPECT_THROW(control.agree({}), CommError);
}

}  // namespace
}  // namespace shoal
