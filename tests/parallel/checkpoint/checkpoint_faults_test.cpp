#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "runtime/base/error.h"
#include "tests/parallel/checkpoint/checkpoint_fixture.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/failing_reads.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FailingFileSystem;
using testing::FailingReads;
using ::testing::HasSubstr;
using testing::read_file;
using testing::run_ranks;
using testing::ToyState;

class CheckpointFaultRanks : public testing::CheckpointTest {
 protected:
  /// Keeps the newest alone; what it warns of goes to `warnings`.
  CheckpointWriter::Options keep_one(std::vector<std::string>& warnings) const {
    CheckpointWriter::Options result = options();
    result.keep_last = 1;
    result.warn = [&warnings](const std::string& text) { warnings.push_back(text); };
    return result;
  }
};

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

TEST_F(CheckpointFaultRanks, OneFailedReadOfAnyRankCostsNoCheckpoint) {
  save(2, 2, 10, 1);
  const std::string newest = save(2, 2, 20, 2);
  for (const std::string& part : {newest + "/" + kManifestName, newest + "/" + shard_name(1, 2)}) {
    for (const int error : {EIO, ESTALE, EMFILE}) {
      const FailingReads failing(part, error, 1);
      run_ranks(2, [&](Communicator& world) {
        ToyState state(world.rank(), 2, 0);
        const Warn no_warning = [](const std::string& text) { ADD_FAILURE() << text; };
        EXPECT_EQ(read_newest_manifest(ckpt_, world)->step, 20);
        EXPECT_EQ(load_newest(ckpt_, state, world, no_warning)->manifest.step, 20);
        EXPECT_TRUE(state.equals(ToyState(world.rank(), 2, 2)));
      });
      EXPECT_EQ(failing.left(), 0);
    }
  }
}

TEST_F(CheckpointFaultRanks, ANewestOneThatCannotBeReadEndsAResumeUnlessItIsToBePassedOver) {
  save(2, 2, 10, 1);
  const std::string newest = save(2, 2, 20, 2);
  const std::string shard = newest + "/" + shard_name(1, 2);
  const FailingReads failing(shard, EACCES);
  std::vector<std::string> warnings;
  run_ranks(2, [&](Communicator& world) {
    ToyState state(world.rank(), 2, 0);
    const Warn warn = [&](const std::string& text) { warnings.push_back(text); };
    try {
      load_newest(ckpt_, state, world, warn);
      ADD_FAILURE() << "passed over";
    } catch (const StorageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(shard));
      EXPECT_THAT(error.hint(), HasSubstr("--override"));
    }
    const auto loaded = load_newest(ckpt_, state, world, warn, /*pass_unreadable=*/true);
    EXPECT_EQ(loaded->manifest.step, 10);
    EXPECT_TRUE(state.equals(ToyState(world.rank(), 2, 1)));
  });
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr(shard), HasSubstr(newest + ".unreadable"))));
  EXPECT_TRUE(std::filesystem::exists(newest + ".unreadable/" + shard_name(1, 2)));
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(10));
}

TEST_F(CheckpointFaultRanks, AnUnreadableManifestOfTheNewestOneEndsAResumeToo) {
  save(2, 2, 10, 1);
  save(2, 2, 20, 2);
  run_ranks(2, [&](Communicator& world) {
    const FailingReads failing(step_folder(20) + "/" + kManifestName, EACCES);
    world.barrier();
    EXPECT_THROW(read_newest_manifest(ckpt_, world), StorageError);
    EXPECT_EQ(read_newest_manifest(ckpt_, world, /*pass_unreadable=*/true)->step, 10);
    world.barrier();
  });
  const FailingReads failing(step_folder(10), EACCES);  // an older one is no matter
  run_ranks(2, [&](Communicator& world) {
    ToyState state(world.rank(), 2, 0);
    EXPECT_EQ(read_newest_manifest(ckpt_, world)->step, 20);
    EXPECT_EQ(load_newest(ckpt_, state, world, {})->manifest.step, 20);
  });
  EXPECT_TRUE(failing.log().empty());
}

TEST_F(CheckpointFaultRanks, WhatOneRankFindsWrongAfterReadingFailsOnAll) {
  struct Checked : ToyState {
    using ToyState::ToyState;
    bool is_wrong = false;
    void tensors_loaded() override {
      if (is_wrong) throw CheckpointError("'order' is no permutation");
    }
  };
  const std::string path = save(2, 2);
  run_ranks(2, [&](Communicator& world) {
    Checked state(world.rank(), 2, 0);
    state.is_wrong = world.rank() == 1;
    try {
      load_checkpoint(path, state, world);
      ADD_FAILURE() << "loaded";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("no permutation"), HasSubstr("on rank 1")));
    }
    EXPECT_EQ(state.steps, 0);
  });
}

TEST_F(CheckpointFaultRanks, ARefusedThreadCostsOneSave) {
  save(2, 2, 5);
  for (const int64_t refused : {0, 1}) {
    std::vector<std::string> warnings;
    run_ranks(2, [&](Communicator& world) {
      ToyState state(world.rank(), 2, 1);
      CheckpointWriter writer(keep_one(warnings), world, posix_);
      const int64_t first = 10 + 10 * refused;
      testing::refuses_threads = world.rank() == refused;
      writer.begin(state, {first, 80, std::nullopt});
      EXPECT_TRUE(writer.written() || world.rank() != refused);
      const SaveOutcome outcome = writer.commit();
      EXPECT_FALSE(outcome.ok);
      EXPECT_THAT(outcome.error,
                  AllOf(HasSubstr("rank " + std::to_string(refused)), HasSubstr("thread")));
      testing::refuses_threads = false;
      writer.begin(state, {first + 1, 88, std::nullopt});
      testing::refuses_threads = world.rank() == 0;  // the one that removes old checkpoints
      EXPECT_TRUE(writer.commit().ok);
      testing::refuses_threads = false;
      EXPECT_TRUE(writer.save(state, {first + 2, 96, std::nullopt}).ok);
    });
    EXPECT_THAT(warnings,
                ElementsAre(AllOf(HasSubstr("older checkpoints stay"), HasSubstr("thread"))));
    EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(12 + 10 * refused));
  }
}

TEST_F(CheckpointFaultRanks, TellsOnceWhatIsKeptSinceItCannotBeRead) {
  for (const int64_t step : {10, 20}) save(2, 2, step);
  const FailingReads failing(step_folder(10) + "/" + kManifestName, EACCES);
  std::vector<std::string> warnings;
  run_ranks(2, [&](Communicator& world) {
    ToyState state(world.rank(), 2, 1);
    CheckpointWriter writer(keep_one(warnings), world, posix_);
    for (const int64_t step : {30, 40, 50}) {
      EXPECT_TRUE(writer.save(state, {step, step * 8, std::nullopt}).ok);
    }
  });
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("stay"), HasSubstr(step_folder(10)))));
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(10, 50));
}

TEST_F(CheckpointFaultRanks, AddsAScoreToWhatIsThere) {
  const std::string path = save(2, 2, 10);
  const std::string digest = content_digest(CheckpointReader(path));
  for (const bool is_failing : {true, false}) {
    run_ranks(2, [&](Communicator& world) {
      FailingFileSystem files;
      CheckpointWriter::Options resumed = options();
      resumed.resumed_step = 10;
      CheckpointWriter writer(resumed, world, files);
      if (is_failing) files.fail_at = files.calls() + 2;
      const SaveOutcome outcome = writer.add_score(0.5);
      EXPECT_EQ(outcome.ok, !is_failing);
      EXPECT_EQ(outcome.step, 10);
      EXPECT_THAT(outcome.error, HasSubstr(is_failing ? scratch_.path() : ""));
    });
    EXPECT_EQ(CheckpointReader(path).manifest().score,
              is_failing ? std::nullopt : std::optional(0.5));
    EXPECT_EQ(content_digest(CheckpointReader(path)), digest);
  }
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
  at_end.record(bad, false);
  at_end.record(bad, false);
  at_end.forget_row();
  at_end.record(bad, false);
  at_end.record(good, true);
  EXPECT_THROW(at_end.record(bad, true), StorageError);
}

}  // namespace
}  // namespace shoal
