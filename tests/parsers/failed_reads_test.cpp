#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "runtime/base/error.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/failing_reads.h"
#include "tests/support/sample_checkpoint.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FailingReads;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_file;
using testing::save_sample;
using testing::ScratchFolder;
using testing::write_file;

TEST(FailedReads, AreRepeated) {
  const ScratchFolder scratch;
  write_file(scratch.file("x"), "abc");
  for (const int error : {EIO, ESTALE, EMFILE, ENFILE, EINTR}) {
    const FailingReads failing(scratch.path(), error, 1);  // the folder
    EXPECT_THAT(UntrustedFolder(scratch.path()).names(), ElementsAre("x"));
    EXPECT_EQ(failing.left(), 0);
  }
  const UntrustedFolder folder(scratch.path());
  for (const int error : {EIO, ESTALE, EMFILE}) {
    const FailingReads failing(scratch.file("x"), error, 1);  // its opening
    EXPECT_EQ(folder.open("x").read(0, 3), "abc");
    EXPECT_EQ(failing.left(), 0);
  }
  const UntrustedFile file = folder.open("x");
  const FailingReads failing(scratch.file("x"), EIO, 2);
  EXPECT_EQ(file.read(0, 3), "abc");
  EXPECT_EQ(failing.left(), 0);
}

TEST(FailedReads, TellNothingOfTheFile) {
  const ScratchFolder scratch;
  write_file(scratch.file("x"), "abc");
  const UntrustedFolder folder(scratch.path());
  const UntrustedFile file = folder.open("x");
  const auto expect_failure = [&](const std::function<void()>& read) {
    try {
      read();
      ADD_FAILURE() << "read";
    } catch (const StorageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(scratch.path()));
      EXPECT_THAT(error.hint(), HasSubstr("--override"));
    }
  };
  {
    const FailingReads failing(scratch.path(), EIO);
    expect_failure([&] { file.read(0, 3); });
  }
  const FailingReads failing(scratch.path(), EACCES);  // of which repeating would not help
  expect_failure([&] { file.read(0, 3); });
  expect_failure([&] { folder.open("x"); });
  expect_failure([&] { UntrustedFolder again(scratch.path()); });
  expect_failure([&] { folder.names(); });
  EXPECT_EQ(failing.log().size(), 4u);
  const FailingReads absent(scratch.path(), ENOENT);
  EXPECT_THROW(folder.open("x"), CheckpointError);
}

/// Checkpoints of a run: the best is step 10, then 20, 30 and 40, the newest.
class UnusableCheckpoint : public ::testing::Test {
 protected:
  ScratchFolder scratch_;
  PosixFileSystem files_;
  std::string run_ = scratch_.file("run"), ckpt_ = run_ + "/ckpt";
  std::vector<std::string> warnings_;
  Warn warn_ = [this](const std::string& line) { warnings_.push_back(line); };

  void SetUp() override {
    make_directory(files_, run_);
    for (const int64_t step : {10, 20, 30, 40}) {
      save_sample(files_, ckpt_, {.step = step, .score = 1.0 / static_cast<double>(step)});
    }
  }
  std::string path(int64_t step) const { return ckpt_ + "/" + step_folder(step); }
  std::string shard(int64_t step) const { return path(step) + "/" + shard_name(1, 2); }
  static void flip(const std::string& file, size_t byte) {
    std::string bytes = read_file(file);
    bytes[byte] ^= 4;
    write_file(file, bytes);
  }
  /// What becomes of the checkpoints at a save of step 40, two of which are kept.
  void expect_first_stays() {
    warnings_.clear();
    EXPECT_EQ(find_best(ckpt_, warn_), path(20));
    EXPECT_THAT(warnings_,
                ElementsAre(AllOf(HasSubstr(path(10)), HasSubstr("cannot be the best one"))));
    EXPECT_THAT(remove_old_checkpoints(files_, ckpt_, {40, 1, 1, {}}), HasSubstr(path(10)));
    EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(10, 20, 40));
  }
};

TEST_F(UnusableCheckpoint, StaysIfItIsADamagedBestAndDoesNotCountAsBest) {
  const std::string manifest = path(10) + "/" + kManifestName;
  const std::vector<std::function<void()>> damages{
      [&] { std::filesystem::resize_file(shard(10), 100); },
      [&] { std::filesystem::remove(shard(10)); },
      [&] { flip(shard(10), 40); },
      [&] { flip(manifest, read_file(manifest).size() / 2); },
      [&] { std::filesystem::remove(manifest); },
      [&] {
        std::filesystem::remove(manifest);
        std::filesystem::create_symlink("/nowhere", manifest);
      },
      [&] {
        std::filesystem::remove_all(path(10));
        write_file(path(10), "no folder");
      }};
  for (size_t i = 0; i < damages.size(); ++i) {
    SCOPED_TRACE(i);
    std::filesystem::remove_all(ckpt_);
    for (const int64_t step : {10, 20, 30, 40}) {
      save_sample(files_, ckpt_, {.step = step, .score = 1.0 / static_cast<double>(step)});
    }
    damages[i]();
    expect_first_stays();
    EXPECT_EQ(resolve_checkpoint(run_, /*best=*/true, false, warn_), path(20));
    EXPECT_THAT(warnings_.back(), AllOf(HasSubstr("passing over"), HasSubstr(path(10))));
  }
}

TEST_F(UnusableCheckpoint, StaysIfItCannotBeReadAndDoesNotCountAsBest) {
  for (const std::string& part : {path(10) + "/" + kManifestName, shard(10), path(10)}) {
    const FailingReads failing(part, EACCES);
    EXPECT_THROW(resolve_checkpoint(run_, /*best=*/true), StorageError);
    EXPECT_EQ(resolve_checkpoint(run_, /*best=*/true, /*pass_unreadable=*/true), path(20));
    expect_first_stays();
  }
  EXPECT_EQ(find_best(ckpt_), path(10));
}

TEST_F(UnusableCheckpoint, IsPassedOverWhereTheNewestThatCanBeReadIsMeant) {
  flip(shard(30), read_file(shard(30)).size() - 1);
  const FailingReads failing(shard(40), EACCES);
  EXPECT_EQ(resolve_checkpoint(run_), path(40));
  // What is damaged can be read, and whoever asks for it is told.
  EXPECT_THROW(resolve_checkpoint(run_, false, /*pass_unreadable=*/true, warn_), CheckpointError);
  std::filesystem::remove_all(path(30));
  EXPECT_EQ(resolve_checkpoint(run_, false, /*pass_unreadable=*/true, warn_), path(20));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr(shard(40)), HasSubstr(shard(40))));
}

TEST_F(UnusableCheckpoint, IsRemovedByNothingOnceItIsSetAside) {
  EXPECT_EQ(set_aside(files_, ckpt_, 40), path(40) + ".unreadable");
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(10, 20, 30));
  remove_old_checkpoints(files_, ckpt_, {30, 1, 0, {}});
  remove_leftovers(files_, ckpt_);
  save_sample(files_, ckpt_, {.step = 40});
  EXPECT_NE(set_aside(files_, ckpt_, 40), path(40) + ".unreadable");
  EXPECT_TRUE(std::filesystem::exists(path(40) + ".unreadable/" + kManifestName));
  EXPECT_TRUE(is_checkpoint_entry("step-00000040.unreadable", true));
  EXPECT_FALSE(is_checkpoint_entry("step-00000040.mine", true));
}

TEST_F(UnusableCheckpoint, IsReadFromTheDiskAfterASave) {
  const FailingReads reads(".tmp-step-00000050-0/", 0, 0);
  save_sample(files_, ckpt_, {.step = 50});
  std::string dropped;
  int64_t num_read = 0;
  for (const std::string& call : reads.log()) {
    const std::string path = call.substr(5);
    if (call.starts_with("drop")) dropped = path;
    if (!call.starts_with("read")) continue;
    EXPECT_EQ(dropped, path);
    ++num_read;
  }
  EXPECT_EQ(num_read, 3);  // two shards and the manifest
}

TEST_F(UnusableCheckpoint, HasItsScoreThoughATemporaryFolderStays) {
  testing::FailingFileSystem counting, failing;
  write_score(counting, ckpt_, 40, 0.25);
  ASSERT_THAT(counting.log().back(), ::testing::StartsWith("remove_directory"));
  failing.fail_at = counting.calls() - 1;
  EXPECT_EQ(write_score(failing, ckpt_, 40, 0.75), path(40));
  EXPECT_EQ(CheckpointReader(path(40)).manifest().score, 0.75);
  const auto entries = [&] {
    return std::distance(std::filesystem::directory_iterator(ckpt_), {});
  };
  EXPECT_EQ(entries(), 5);
  remove_leftovers(files_, ckpt_);
  EXPECT_EQ(entries(), 4);
}

TEST_F(UnusableCheckpoint, NeverComesFromAScoreThatIsAdded) {
  const std::string digest = content_digest(CheckpointReader(path(40)));
  for (int64_t deaths = 0;; ++deaths) {
    write_score(files_, ckpt_, 40, 0.25);
    remove_leftovers(files_, ckpt_);
    const pid_t child = ::fork();
    if (child == 0) {
      testing::FailingFileSystem dying;
      dying.fail_at = deaths;
      dying.kill = true;
      write_score(dying, ckpt_, 40, 0.75);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const CheckpointReader reader(path(40));
    EXPECT_NO_THROW(reader.verify_data());
    EXPECT_EQ(content_digest(reader), digest);
    EXPECT_TRUE(reader.manifest().score == 0.25 || reader.manifest().score == 0.75);
    if (!WIFEXITED(status)) continue;
    EXPECT_EQ(reader.manifest().score, 0.75);
    EXPECT_GT(deaths, 5);
    break;
  }
  EXPECT_THAT(list_checkpoints(ckpt_), ElementsAre(10, 20, 30, 40));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(ckpt_), {}), 4);
}

}  // namespace
}  // namespace shoal
