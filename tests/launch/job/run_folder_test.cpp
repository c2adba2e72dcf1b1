#include "launch/job/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "launch/job/run_lock.h"
#include "runtime/base/error.h"
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
  make_run();
  EXPECT_THROW(open(OnExisting::kFail), ConfigError);
}

TEST_F(RunFolders, ThatAFailedStartLeftAreBegunAgain) {
  const RunFolder folder = open(OnExisting::kFail);
  write_file(folder.logs() + "/rank-00000.log", "it failed");
  write_file(folder.file(".lock"), "");
  EXPECT_FALSE(open(OnExisting::kFail).resume);
  EXPECT_EQ(testing::read_file(folder.logs() + "/rank-00000.log"), "it failed");
}

TEST_F(RunFolders, WithTheLeastOfARunOrAStrangerAreNotAFailedStart) {
  for (const char* name : {"resolved.yaml", "metrics.jsonl", "ckpt/.tmp-step-00000001-0/part",
                           "ckpt/step-00000001/manifest.json", "notes", "log/notes"}) {
    const RunFolder folder = open(OnExisting::kFail);
    fs::create_directories(fs::path(folder.file(name)).parent_path());
    write_file(folder.file(name), "x");
    EXPECT_THROW(open(OnExisting::kFail), ConfigError) << name;
    fs::remove_all(folder.path);
  }
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

TEST_F(RunFolders, WithAllThatARunWritesAreOverwritten) {
  const std::string path = make_run();
  fs::create_directories(path + "/ckpt/step-00000001");
  fs::create_directories(path + "/ckpt/.tmp-step-00000002-0");
  fs::create_directories(path + "/ckpt/.old-step-00000000");
  for (const char* name : {"env.json", "summary.json", "summary.json.tmp", "metrics.jsonl",
                           "metrics.csv", "experts.jsonl", ".lock", "log/rank-00000.log",
                           "log/rank-123456.log", "LATEST", "LATEST.tmp"}) {
    write_file(path + "/" + name, "");
  }
  EXPECT_FALSE(open(OnExisting::kOverwrite).resume);
  EXPECT_FALSE(fs::exists(path + "/resolved.yaml"));
  EXPECT_TRUE(fs::is_empty(path + "/ckpt"));
}

TEST_F(RunFolders, WithAnythingThatNoRunWroteAreLeftAsTheyAre) {
  for (const std::string name :
       {"thesis.tex", "data/x", "env.json/x", "log/diary.log", "log/rank-0000x.log", "log/sub/x",
        "ckpt/model.pt", "ckpt/step-1/x", "LATEST/x", "ckpt/LATEST"}) {
    const std::string path = make_run();
    fs::create_directories(fs::path(path + "/" + name).parent_path());
    write_file(path + "/" + name, "precious");
    try {
      open(OnExisting::kOverwrite);
      ADD_FAILURE() << "removed " << name;
    } catch (const ConfigError& error) {
      const std::string named = name.ends_with("/x") ? name.substr(0, name.size() - 2) : name;
      EXPECT_THAT(error.what(), HasSubstr(named));
    }
    EXPECT_EQ(testing::read_file(path + "/" + name), "precious");
    EXPECT_TRUE(fs::exists(path + "/resolved.yaml"));
    fs::remove_all(path);
  }
}

TEST_F(RunFolders, NameAFewOfManyThingsThatNoRunWrote) {
  const std::string path = make_run();
  for (int i = 0; i < 8; ++i) write_file(path + "/note" + std::to_string(i), "");
  try {
    open(OnExisting::kOverwrite);
    ADD_FAILURE() << "removed notes";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("note0, note1, note2, note3, note4 and 3 more"));
  }
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
    if (world.rank() == 0) write_file(root.file("run/resolved.yaml"), "x");
    EXPECT_THROW(open_run_folder(root.path(), "run", OnExisting::kFail, world), ConfigError);
  });
}

}  // namespace
}  // namespace shoal
