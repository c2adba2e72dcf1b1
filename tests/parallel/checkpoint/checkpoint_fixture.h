#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "parallel/checkpoint/checkpoint.h"
#include "runtime/files/file_system.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thread_communicator.h"
#include "tests/support/toy_state.h"

namespace shoal::testing {

/// Checkpoints of ToyStates in a folder of the test's own.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointWriter::Options options() const {
    CheckpointWriter::Options options;
    options.folder = ckpt_;
    options.run_id = "run-a";
    options.recipe = "train: {batch: 8}\n";
    return options;
  }
  /// Saves a state of `seed` at `step` on ranks = expert_ranks × replicas; returns its path.
  std::string save(int64_t ranks, int64_t expert_ranks, int64_t step = 10, int64_t seed = 1) {
    std::string path;
    run_ranks(ranks, [&](Communicator& world) {
      ToyState state(world.rank(), expert_ranks, seed);
      CheckpointWriter writer(options(), world, posix_);
      const SaveOutcome outcome = writer.save(state, {step, step * 8, std::nullopt});
      EXPECT_EQ(outcome.error, "");
      if (world.rank() == 0) path = outcome.path;
    });
    return path;
  }

  ScratchFolder scratch_;
  PosixFileSystem posix_;
  std::string ckpt_ = scratch_.file("ckpt");
};

}  // namespace shoal::testing
