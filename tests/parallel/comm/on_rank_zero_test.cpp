#include "parallel/comm/on_rank_zero.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

TEST(OnRankZeroRanks, GivesItsTextToAll) {
  testing::run_ranks(3, [](Communicator& world) {
    const auto work = [&world] { return "from " + std::to_string(world.rank()) + "\n"; };
    EXPECT_EQ(on_rank_zero(world, work), "from 0\n");
    EXPECT_EQ(on_rank_zero(world, [] { return std::string(); }), "");
  });
}

/// What every rank catches when rank 0 throws `thrown`.
template <typename Thrown>
void expect_everywhere(const Thrown& thrown) {
  testing::run_ranks(3, [&thrown](Communicator& world) {
    try {
      on_rank_zero(world, [&thrown]() -> std::string { throw thrown; });
      ADD_FAILURE() << "nothing was thrown on rank " << world.rank();
    } catch (const Thrown& error) {
      EXPECT_STREQ(error.what(), thrown.what());
      EXPECT_EQ(error.code(), thrown.code());
      EXPECT_EQ(error.hint(), thrown.hint());
    }
  });
}

TEST(OnRankZeroRanks, ThrowsItsErrorOnAll) {
  expect_everywhere(Error(ExitCode::kBusy, "two\nlines", "wait"));
  expect_everywhere(ConfigError("r.yaml:1:1: x"));
  expect_everywhere(StorageError("full", "free some space"));
  expect_everywhere(CheckpointError("broken"));
  expect_everywhere(DataError("none", "fetch it"));
}

TEST(OnEveryRankRanks, ThrowsTheFirstRanksErrorOnAll) {
  testing::run_ranks(3, [](Communicator& world) {
    int64_t done = 0;
    on_every_rank(world, [&] { ++done; });
    EXPECT_EQ(done, 1);
    try {
      on_every_rank(world, [&world] {
        if (world.rank() > 0) {
          throw CheckpointError("broken on " + std::to_string(world.rank()), "another one");
        }
      });
      ADD_FAILURE() << "nothing was thrown on rank " << world.rank();
    } catch (const CheckpointError& error) {
      EXPECT_STREQ(error.what(), "broken on 1 (on rank 1)");
      EXPECT_EQ(error.hint(), "another one");
    }
  });
}

TEST(OnEveryRankRanks, TakesOtherExceptionsForBugs) {
  testing::run_ranks(2, [](Communicator& world) {
    try {
      on_every_rank(world, [&world] { TORCH_CHECK(world.rank() == 0, "not so"); });
      ADD_FAILURE() << "nothing was thrown on rank " << world.rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInternal);
    }
  });
}

}  // namespace
}  // namespace shoal
