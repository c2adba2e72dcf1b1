#include "parallel/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/sample_checkpoint.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using testing::FailingFileSystem;
using testing::read_file;
using testing::save_sample;
using testing::ScratchFolder;
using testing::write_file;

class CheckpointFolder : public ::testing::Test {
 protected:
  ScratchFolder scratch_;
  PosixFileSystem files_;
  std::string run_ = scratch_.file("run");
  std::string ckpt_ = run_ + "/ckpt";
  std::vector<std::string> warnings_;

  void SetUp() override { make_directory(files_, run_); }
  void save(int64_t step, std::optional<double> score = {}) {
    save_sample(files_, ckpt_, {.step = step, .score = score});
  }
  void rot(int64_t step) {
    const std::string shard = ckpt_ + "/" + step_folder(step) + "/" + shard_name(0, 2);
    std::string bytes = read_file(shard);
    bytes.back() ^= 1;
    write_file(shard, bytes);
  }
  /// The newest step of which every byte is right; -1 if there is none.
  int64_t newest() {
    const std::vector<int64_t> steps = list_checkpoints(ckpt_);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      try {
        CheckpointReader(ckpt_ + "/" + step_folder(*step)).verify_data();
        return *step;
      } catch (const CheckpointError& error) {
        warnings_.emplace_back(error.what());
      }
    }
    return -1;
  }
};

TEST_F(CheckpointFolder, NamesStepsSoThatTheySort) {
  EXPECT_EQ(step_folder(1200), "step-00001200");
  EXPECT_EQ(parse_step_folder("step-00001200"), 1200);
  EXPECT_EQ(parse_step_folder(step_folder(123456789012)), 123456789012);
  for (const char* name : {"step-1200", "step-000012000", "step--0000001", "step-0000120x", "step-",
                           ".tmp-step-00000001-0", "step-99999999999999999999"}) {
    EXPECT_FALSE(parse_step_folder(name).has_value()) << name;
  }
}

TEST_F(CheckpointFolder, IsEmptyBeforeTheFirstSave) {
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre());
  EXPECT_EQ(newest(), -1);
}

TEST_F(CheckpointFolder, IsNotTakenForMissingWhereItCannotBeReached) {
  std::filesystem::create_symlink(ckpt_, ckpt_);  // leads to itself
  EXPECT_THROW(list_checkpoints(ckpt_), CheckpointError);
  const CheckpointError error = naming_older(CheckpointError("damaged"), ckpt_ + "/step-00000040");
  EXPECT_STREQ(error.what(), "damaged");
  EXPECT_EQ(error.hint(), "");
}

TEST_F(CheckpointFolder, ResolvesRunsAndFoldersAndTheBest) {
  save(10, 0.7);
  save(20, 0.9);
  save(30, 0.9);
  save(40);
  EXPECT_EQ(resolve_checkpoint(run_), ckpt_ + "/step-00000040");
  EXPECT_EQ(resolve_checkpoint(ckpt_), ckpt_ + "/step-00000040");
  EXPECT_EQ(resolve_checkpoint(ckpt_ + "/step-00000010//"), ckpt_ + "/step-00000010");
  EXPECT_EQ(resolve_checkpoint(run_, true), ckpt_ + "/step-00000020");
}

TEST_F(CheckpointFolder, NamesTheNextOlderCheckpointWhereTheNewestIsDamaged) {
  for (const int64_t step : {10, 20, 30, 40}) save(step);
  rot(40);
  const auto hint = [this] {
    try {
      resolve_checkpoint(run_, false, /*pass_unreadable=*/true);
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("step-00000040"));
      return error.hint();
    }
    return std::string("none is damaged");
  };
  EXPECT_EQ(hint(), "use the next older one, '" + ckpt_ + "/step-00000030'");
  write_file(ckpt_ + "/step-00000030/manifest.json", "no manifest");
  EXPECT_EQ(hint(), "use the next older one, '" + ckpt_ + "/step-00000020'");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(ckpt_);
  const CheckpointError bare = naming_older(CheckpointError("damaged"), "step-00000020");
  std::filesystem::current_path(before);
  EXPECT_EQ(bare.hint(), "use the next older one, './step-00000010'");
  for (const char* older : {"10", "20", "30"}) {
    std::filesystem::remove_all(ckpt_ + "/step-000000" + older);
  }
  EXPECT_EQ(hint(), "");
}

TEST_F(CheckpointFolder, KeepsTheLastTheBestAndTheResumeSource) {
  for (const int64_t step : {10, 20, 30, 40, 50}) save(step, step == 20 ? 0.9 : 0.5);
  remove_old_checkpoints(files_, ckpt_, {50, 2, 1, 10});
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(10, 20, 40, 50));
  remove_old_checkpoints(files_, ckpt_, {50, 0, 0, std::nullopt});
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(50));
}

TEST_F(CheckpointFolder, IsRemovedWithTheFoldersInItButNotWithWhatLinksLeadTo) {
  make_directory(files_, ckpt_);
  make_directory(files_, ckpt_ + "/inner");
  write_file(ckpt_ + "/inner/a", "x");
  make_directory(files_, scratch_.file("elsewhere"));
  write_file(scratch_.file("elsewhere/precious"), "x");
  std::filesystem::create_symlink(scratch_.file("elsewhere"), ckpt_ + "/link");
  std::filesystem::create_symlink("nowhere", ckpt_ + "/broken");
  remove_folder(files_, ckpt_);
  EXPECT_FALSE(std::filesystem::exists(ckpt_));
  EXPECT_EQ(read_file(scratch_.file("elsewhere/precious")), "x");
}

TEST_F(CheckpointFolder, DropsStepsBehindTheNewestOne) {
  for (const int64_t step : {10, 20, 30}) save(step);
  rot(30);
  remove_old_checkpoints(files_, ckpt_, {20, 1, 0, std::nullopt});
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(20));
}

TEST_F(CheckpointFolder, ReplacesACheckpointOfTheSameStep) {
  save(10);
  save(20);
  rot(20);
  save(20);
  EXPECT_EQ(newest(), 20);
  EXPECT_TRUE(std::filesystem::exists(ckpt_ + "/.old-step-00000020"));
  // What stood in place of a checkpoint may have been a file.
  std::ofstream(ckpt_ + "/.old-step-00000010") << "no folder";
  remove_leftovers(files_, ckpt_);
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(10, 20));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(ckpt_), {}), 2);
}

TEST_F(CheckpointFolder, SurvivesDeathAtEveryCallOfARemoval) {
  for (int64_t at = 0;; ++at) {
    std::filesystem::remove_all(ckpt_);
    save(10);
    save(20);
    const pid_t child = ::fork();
    if (child == 0) {
      FailingFileSystem dying;
      dying.fail_at = at;
      dying.kill = true;
      remove_old_checkpoints(dying, ckpt_, {20, 1, 0, std::nullopt});
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(newest(), 20);
    EXPECT_TRUE(warnings_.empty());
    remove_leftovers(files_, ckpt_);
    remove_old_checkpoints(files_, ckpt_, {20, 1, 0, std::nullopt});
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(ckpt_), {}), 1);
    if (WIFEXITED(status)) break;
  }
}

TEST_F(CheckpointFolder, SurvivesDeathAtEveryCallOfASave) {
  int64_t deaths = 0;
  for (;; ++deaths) {
    std::filesystem::remove_all(ckpt_);
    save(10);
    const pid_t child = ::fork();
    if (child == 0) {
      FailingFileSystem dying;
      dying.fail_at = deaths;
      dying.kill = true;
      save_sample(dying, ckpt_, {.step = 20});
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const int64_t survivor = newest();
    EXPECT_TRUE(survivor == 10 || survivor == 20) << survivor;
    EXPECT_TRUE(warnings_.empty());
    remove_leftovers(files_, ckpt_);
    save(21);
    EXPECT_EQ(newest(), 21);
    if (WIFEXITED(status)) break;
  }
  EXPECT_GT(deaths, 20);
}

TEST_F(CheckpointFolder, SyncsEveryShardBeforeTheRename) {
  FailingFileSystem files;
  save_sample(files, ckpt_, {.step = 10});
  int open_files = 0, synced = 0;
  for (const std::string& call : files.log()) {
    if (call.starts_with("open " + ckpt_)) ++open_files;
    if (call == "sync") ++synced;
    if (call.starts_with("rename " + ckpt_)) break;
  }
  EXPECT_EQ(open_files, 3);  // two shards, the manifest
  EXPECT_EQ(synced, 4);      // and their folder
}

}  // namespace
}  // namespace shoal
