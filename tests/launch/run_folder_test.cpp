#include "launch/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "launch/run_lock.h"
#include "runtime/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::write_file;

class RunFolders : public ::testing::Test {
 protected:
  ScratchFolder root_;

  RunFolder open(OnExisting policy) {
    const std::unique_ptr<Communicator> world = make_self_communicator();
    return open_run_folder(root_.path(), "run", policy, *world);
  }
  std::string make_run() {
    const RunFolder folder = open(OnExisting::kFail);
    write_file(folder.file("resolved.yaml"), "x");
    return folder.path;
  }
};

TEST_F(RunFolders, AreBegunOrGoneOnWith) {
  EXPECT_FALSE(open(OnExisting::kResume).resume);
  EXPECT_TRUE(open(OnExisting::kResume).resume);
  EXPECT_THROW(open(OnExisting::kFail), ConfigError);
}

TEST_F(RunFolders, GetTheFirstFreeNumber) {
  const std::string path = make_run();
  EXPECT_EQ(open(OnExisting::kNew).path, path + "-2");
  EXPECT_EQ(open(OnExisting::kNew).path, path + "-3");
}

TEST_F(RunFolders, AreOverwrittenOnlyIfTheyHoldARun) {
  const std::string path = make_run();
  write_file(path + "/metrics.jsonl", "old");
  EXPECT_FALSE(open(OnExisting::kOverwrite).resume);
  EXPECT_FALSE(fs::exists(path + "/metrics.jsonl"));
  fs::remove_all(path);
  fs::create_directories(path + "/log");
  write_file(path + "/log/diary", "precious");
  EXPECT_THROW(open(OnExisting::kOverwrite), ConfigError);
  EXPECT_TRUE(fs::exists(path + "/log/diary"));
}

TEST_F(RunFolders, AreNotOverwrittenWhileAJobWorksInThem) {
  const std::string path = make_run();
  PosixFileSystem files;
  const RunLock lock(path, files, [](const std::string&) {});
  try {
    open(OnExisting::kOverwrite);
    ADD_FAILURE() << "removed the folder of a job";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kBusy);
  }
  EXPECT_TRUE(fs::exists(path + "/resolved.yaml"));
}

TEST_F(RunFolders, NameWhatCannotBeCreated) {
  write_file(root_.file("file"), "");
  const std::unique_ptr<Communicator> world = make_self_communicator();
  try {
    open_run_folder(root_.file("file"), "run", OnExisting::kFail, *world);
    ADD_FAILURE() << "created a folder below a file";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(root_.file("file")));
    EXPECT_THAT(error.hint(), HasSubstr("run.root"));
  }
}

TEST(RunFolderRanks, AreTheSameOnAllRanks) {
  const ScratchFolder root;
  testing::run_ranks(3, [&root](Communicator& world) {
    EXPECT_EQ(open_run_folder(root.path(), "run", OnExisting::kNew, world).path, root.file("run"));
    EXPECT_THROW(open_run_folder(root.path(), "run", OnExisting::kFail, world), ConfigError);
  });
}

}  // namespace
}  // namespace shoal
