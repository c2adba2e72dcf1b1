#include "launch/on_rank_zero.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/error.h"
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

}  // namespace
}  // namespace shoal
