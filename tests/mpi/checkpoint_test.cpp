#include "parallel/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "parallel/checkpoint/checkpoint_load.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/toy_state.h"

namespace shoal {
namespace {

using testing::FailingFileSystem;
using testing::ScratchFolder;
using testing::ToyState;

/// The world with a folder that all its processes see.
struct SharedFolder {
  std::unique_ptr<Communicator> world = make_mpi_communicator();
  std::optional<ScratchFolder> own;
  std::string path;
  SharedFolder() {
    if (world->rank() == 0) own.emplace();
    path = broadcast_text(*world, own.has_value() ? own->path() : "");
  }
  ~SharedFolder() { world->barrier(); }
};

TEST(CheckpointMpi, SavesInTheBackgroundAndLoads) {
  SharedFolder shared;
  Communicator& world = *shared.world;
  PosixFileSystem files;
  CheckpointWriter::Options options;
  options.folder = shared.path + "/ckpt";
  CheckpointWriter writer(options, world, files);
  ToyState state(world.rank(), world.size(), 1);
  writer.begin(state, {10, 80, std::nullopt});
  state.weight.zero_();
  const SaveOutcome outcome = writer.commit();
  ASSERT_EQ(outcome.error, "");
  ToyState loaded(world.rank(), world.size(), 0);
  load_checkpoint(outcome.path, loaded, world);
  EXPECT_TRUE(loaded.equals(ToyState(world.rank(), world.size(), 1)));
  EXPECT_EQ(state_digest(loaded, 10, 80, world), content_digest(CheckpointReader(outcome.path)));
}

TEST(CheckpointMpi, ToleratesAFullDiskOnTheLastRank) {
  SharedFolder shared;
  Communicator& world = *shared.world;
  FailingFileSystem files;
  CheckpointWriter::Options options;
  options.folder = shared.path + "/ckpt";
  CheckpointWriter writer(options, world, files);
  ToyState state(world.rank(), 1, 1);
  if (world.rank() == world.size() - 1) {
    files.fail_at = world.rank() == 0 ? 5 : 1;
    files.error = ENOSPC;
  }
  const SaveOutcome outcome = writer.save(state, {10, 80, std::nullopt});
  EXPECT_FALSE(outcome.ok);
  EXPECT_NE(outcome.error.find("No space left on device"), std::string::npos) << outcome.error;
  EXPECT_TRUE(writer.save(state, {20, 160, std::nullopt}).ok);
}

}  // namespace
}  // namespace shoal
