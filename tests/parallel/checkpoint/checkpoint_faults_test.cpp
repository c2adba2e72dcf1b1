#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "parallel/checkpoint/checkpoint.h"
#include "runtime/base/error.h"
#include "tests/parallel/checkpoint/checkpoint_fixture.h"
#include "tests/support/failing_file_system.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using testing::FailingFileSystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::run_ranks;
using testing::ToyState;

class CheckpointFaultRanks : public testing::CheckpointTest {};

/// One save while call `at` of `failing_rank` fails; then the next save must succeed.
struct FailedSave {
  SaveOutcome outcome, next;
  int64_t calls = 0;
};

FailedSave save_failing(const CheckpointWriter::Options& options, int64_t failing_rank, int64_t at,
                        int error) {
  FailedSave result;
  run_ranks(2, [&](Communicator& world) {
    ToyState state(world.rank(), 2, 2);
    FailingFileSystem files;
    CheckpointWriter writer(options, world, files);
    if (world.rank() == failing_rank) {
      files.fail_at = files.calls() + at;
      files.error = error;
    }
    const SaveOutcome outcome = writer.save(state, {20, 160, std::nullopt});
    if (world.rank() == failing_rank) {
      result.outcome = outcome;
      result.calls = files.calls();
    }
    files.fail_at = -1;
    const SaveOutcome next = writer.save(state, {30, 240, std::nullopt});
    if (world.rank() == 0) result.next = next;
  });
  return result;
}

TEST_F(CheckpointFaultRanks, AnyFailingCallOnAnyRankCostsOneSaveAtMost) {
  for (const auto& [rank, error] :
       {std::pair{0, ENOSPC}, {0, EIO}, {0, EDQUOT}, {1, ENOSPC}, {1, EIO}, {1, EDQUOT}}) {
    int64_t failed = 0;
    for (int64_t at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("errno {} at call {} of rank {}", error, at, rank));
      std::filesystem::remove_all(ckpt_);
      save(2, 2, 5);  // which a save that succeeds removes
      save(2, 2, 10);
      const FailedSave result = save_failing(options(), rank, at, error);
      if (!result.outcome.ok) {
        ++failed;
        EXPECT_THAT(result.outcome.error, HasSubstr(scratch_.path()));
      }
      EXPECT_EQ(result.next.error, "");
      EXPECT_EQ(CheckpointReader(result.next.path).manifest().step, 30);
      for (const int64_t step : list_checkpoints(ckpt_)) {
        EXPECT_NO_THROW(CheckpointReader(ckpt_ + "/" + step_folder(step)).verify_data());
      }
      // The two newest of those that were made, and nothing else.
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(ckpt_), {}), 2);
      if (at >= result.calls) break;
    }
    EXPECT_GT(failed, rank == 0 ? 10 : 3);
  }
}

TEST_F(CheckpointFaultRanks, FailsIfWhatARankWroteReadsBackDifferently) {
  save(2, 2);
  for (const int64_t failing : {0, 1}) {
    int64_t wrong = 0;
    for (int64_t at = 0; at < 12; ++at) {
      run_ranks(2, [&](Communicator& world) {
        ToyState state(world.rank(), 2, 2);
        FailingFileSystem files;
        CheckpointWriter writer(options(), world, files);
        files.store_wrongly = true;
        if (world.rank() == failing) files.fail_at = files.calls() + at;
        writer.begin(state, {20, 160, std::nullopt});
        while (!writer.written()) std::this_thread::yield();
        const bool is_write = files.fail_at >= 0 && files.fail_at < files.calls() &&
                              files.log()[static_cast<size_t>(files.fail_at)] == "write";
        const SaveOutcome outcome = writer.commit();
        if (world.rank() != failing || !is_write) return;
        ++wrong;
        EXPECT_FALSE(outcome.ok);
        EXPECT_THAT(outcome.error, AllOf(HasSubstr(fmt::format("rank {}: '", failing)),
                                         HasSubstr(shard_name(failing, 2)),
                                         HasSubstr("read back are not those written")));
      });
      std::filesystem::remove_all(ckpt_ + "/step-00000020");
    }
    EXPECT_EQ(wrong, 2) << "header and data";
  }
}

/// Bytes that this process has read from files.
int64_t bytes_read() {
  std::istringstream io(read_file("/proc/self/io"));
  std::string key;
  int64_t bytes = -1;
  io >> key >> bytes;
  EXPECT_EQ(key, "rchar:");
  return bytes;
}

TEST_F(CheckpointFaultRanks, ReadsNoShardAgainWhenItCommits) {
  struct Large : Stateful {
    torch::Tensor value = torch::ones({int64_t{8} << 20}, torch::kByte);
    void visit_state(StateVisitor& visitor) override { visitor.tensor({"w", value}); }
  };
  const int64_t before = bytes_read();
  run_ranks(2, [&](Communicator& world) {
    Large state;
    CheckpointWriter writer(options(), world, posix_);
    writer.begin(state, {10, 80, std::nullopt});
    while (!writer.written()) std::this_thread::yield();
    world.barrier();
    const int64_t written = bytes_read();
    EXPECT_GT(written - before, 8 << 20);  // the writing rank has read back what it wrote
    world.barrier();
    EXPECT_TRUE(writer.commit().ok);
    writer.begin(state, {10, 80, std::nullopt});  // which waits for what the commit left to do
    EXPECT_TRUE(writer.commit().ok);
    world.barrier();
    EXPECT_LT(bytes_read() - written, 1 << 20);
  });
}

TEST(SaveFailures, EndTheRunAfterThreeInARowOrAtTheEnd) {
  const SaveOutcome good{true, 1, "p", "", 0, true}, bad{false, 1, "", "write 'x': full", 0, true};
  SaveFailures failures;
  failures.record(bad, false);
  failures.record(bad, false);
  failures.record(good, false);
  failures.record(bad, false);
  failures.record(bad, false);
  EXPECT_EQ(failures.total(), 4);
  try {
    failures.record(bad, false);
    ADD_FAILURE() << "went on";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("3 checkpoints"), HasSubstr("write 'x': full")));
  }
  SaveFailures at_end;
  at_end.record(good, true);
  EXPECT_THROW(at_end.record(bad, true), StorageError);
}

}  // namespace
}  // namespace shoal
