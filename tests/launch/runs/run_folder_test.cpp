#include "launch/runs/run_folder.h"
#include "launch/recipe/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/error.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ScratchFolder;
using testing::write_file;

void ignore(const std::string&) {}

class RunFolders : public ::testing::Test {
 protected:
  ScratchFolder root_;
  PosixFileSystem files_;

  RunFolder open(OnExisting policy, FileSystem& files) {
    const std::unique_ptr<Communicator> world = make_self_communicator();
    return open_run_folder(root_.file("run"), policy, *world, files, ignore);
  }
  RunFolder open(OnExisting policy) { return open(policy, files_); }
  ExitCode refusal(OnExisting policy) {
    try {
      open(policy);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kOk;
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

TEST_F(RunFolders, AreCheckedBeforehandWithoutAChange) {
  const std::unique_ptr<Communicator> world = make_self_communicator();
  check_run_folder(root_.file("run"), OnExisting::kFail, *world);
  EXPECT_FALSE(fs::exists(root_.file("run")));
  make_run();
  EXPECT_THROW(check_run_folder(root_.file("run"), OnExisting::kFail, *world), ConfigError);
  check_run_folder(root_.file("run"), OnExisting::kOverwrite, *world);
  EXPECT_TRUE(fs::exists(root_.file("run/resolved.yaml")));
}

TEST_F(RunFolders, ThatAFailedStartLeftAreBegunAgain) {
  RunFolder folder = open(OnExisting::kFail);
  folder.lock = nullptr;
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
  for (const char* name :
       {"env.json", "summary.json", "summary.json.tmp", "metrics.jsonl", "metrics.csv",
        "experts.jsonl", "gates.jsonl", "permutations.jsonl", "layers.jsonl", ".lock",
        "log/rank-00000.log", "log/rank-123456.log", "LATEST", "LATEST.node-7-0.tmp",
        "tb/events.out.tfevents.1700000000.shoal"}) {
    fs::create_directories(fs::path(path + "/" + name).parent_path());
    write_file(path + "/" + name, "");
  }
  EXPECT_FALSE(open(OnExisting::kOverwrite).resume);
  EXPECT_FALSE(fs::exists(path + "/resolved.yaml"));
  EXPECT_TRUE(fs::is_empty(path + "/ckpt"));
}

TEST_F(RunFolders, AreClearedOfTemporaryFilesThatADeadProcessLeft) {
  const std::string path = make_run();
  fs::create_directories(path + "/ckpt/step-00000001");
  write_file(path + "/metrics.jsonl.node-7-0.tmp", "");
  write_file(path + "/ckpt/LATEST.node-7-1.tmp", "");
  write_file(path + "/report.html.node-8-0.tmp", "of a report at work");
  write_file(path + "/notes.tmp", "precious");
  EXPECT_TRUE(open(OnExisting::kResume).resume);
  EXPECT_FALSE(fs::exists(path + "/metrics.jsonl.node-7-0.tmp"));
  EXPECT_FALSE(fs::exists(path + "/ckpt/LATEST.node-7-1.tmp"));
  EXPECT_TRUE(fs::exists(path + "/report.html.node-8-0.tmp"));
  EXPECT_TRUE(fs::exists(path + "/notes.tmp"));
}

TEST_F(RunFolders, WithAnythingThatNoRunWroteAreLeftAsTheyAre) {
  for (const std::string name :
       {"thesis.tex", "data/x", "env.json/x", "log/diary.log", "log/rank-0000x.log", "log/sub/x",
        "ckpt/model.pt", "ckpt/step-1/x", "LATEST/x", "ckpt/LATEST", "tb/notes", "tb/sub/x",
        "tb/events.out.tfevents.1700000000.mine"}) {
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
  const RunLock lock(path, files_, ignore);
  EXPECT_EQ(refusal(OnExisting::kOverwrite), ExitCode::kBusy);
  EXPECT_TRUE(fs::exists(path + "/resolved.yaml"));
}

TEST_F(RunFolders, AreLockedBeforeTheyAreOverwrittenAndUntilTheNewRunEnds) {
  write_file(make_run() + "/metrics.jsonl", "old");
  testing::FailingFileSystem files;
  files.fail_at = 1;
  EXPECT_THROW(open(OnExisting::kOverwrite, files), StorageError);
  EXPECT_EQ(testing::read_file(root_.file("run/metrics.jsonl")), "old");

  const size_t num_before = files.log().size();
  files.fail_at = -1;
  const RunFolder folder = open(OnExisting::kOverwrite, files);
  EXPECT_FALSE(fs::exists(folder.file("metrics.jsonl")));
  EXPECT_TRUE(fs::exists(folder.file(".lock")));
  ASSERT_GT(files.log().size(), num_before);
  for (size_t call = num_before; call < files.log().size(); ++call) {
    EXPECT_THAT(files.log()[call], Not(::testing::ContainsRegex("close|remove.*/\\.lock")));
  }
  EXPECT_EQ(refusal(OnExisting::kResume), ExitCode::kBusy);
}

TEST_F(RunFolders, WithoutACheckpointAreBegunAnewAndKeepTheirRecords) {
  const std::string path = make_run();
  std::vector<std::string> told;
  const auto resume = [&] {
    const std::unique_ptr<Communicator> world = make_self_communicator();
    return open_run_folder(path, OnExisting::kResume, *world, files_,
                           [&told](const std::string& line) { told.push_back(line); });
  };
  fs::create_directories(path + "/ckpt/.tmp-step-00000002-0");  // a save that was cut short
  for (const std::string attempt : {"1", "2"}) {
    for (const char* name : {"resolved.yaml", "metrics.jsonl", "LATEST", "summary.json"}) {
      write_file(path + "/" + name, "of " + attempt);
    }
    resume();
    ASSERT_EQ(told.size(), 1u);
    EXPECT_THAT(told[0], AllOf(HasSubstr(path), HasSubstr("*.attempt-" + attempt)));
    told.clear();
    for (const char* name : {"resolved.yaml", "metrics.jsonl", "LATEST", "summary.json"}) {
      EXPECT_FALSE(fs::exists(path + "/" + name)) << name;
      EXPECT_EQ(testing::read_file(path + "/" + name + ".attempt-" + attempt), "of " + attempt);
    }
  }
  resume();  // without records
  EXPECT_THAT(told, ElementsAre(HasSubstr("no run to resume in '" + path + "'")));
  told.clear();
  write_file(path + "/metrics.jsonl", "60");
  fs::create_directories(path + "/ckpt/step-00000060");
  EXPECT_TRUE(resume().resume);
  EXPECT_EQ(testing::read_file(path + "/metrics.jsonl"), "60");
  EXPECT_TRUE(told.empty());
  EXPECT_FALSE(open(OnExisting::kOverwrite).resume);
  EXPECT_FALSE(fs::exists(path + "/metrics.jsonl.attempt-1"));
}

TEST_F(RunFolders, WithNothingToResumeAreBegunWithAWarningThatNamesASimilarRun) {
  fs::create_directories(root_.file("rnu/ckpt/step-00000060"));
  std::vector<std::string> told;
  const auto resume = [&](const std::string& name) {
    const std::unique_ptr<Communicator> world = make_self_communicator();
    return open_run_folder(root_.file(name), OnExisting::kResume, *world, files_,
                           [&told](const std::string& line) { told.push_back(line); });
  };
  EXPECT_FALSE(resume("run").resume);
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("no run to resume in '" + root_.file("run") + "'"),
                                      HasSubstr("run.name"),
                                      HasSubstr("did you mean '" + root_.file("rnu") + "'?"))));
  told.clear();
  resume("quite_another");
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("no run to resume"), Not(HasSubstr("did you")))));
  told.clear();
  EXPECT_TRUE(resume("rnu").resume);
  EXPECT_TRUE(told.empty());
}

TEST_F(RunFolders, ThatAreNotThereAreRefusedWithTheNearestPath) {
  const std::string path = make_run();
  const auto refusal = [](const std::string& wanted) {
    try {
      require_path(wanted);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(refusal(path), "none");
  EXPECT_EQ(refusal(path + "/"), "none");
  for (const char* typo : {"rum", "rnu/", "rn"}) {
    EXPECT_THAT(refusal(root_.file(typo)),
                HasSubstr("does not exist; did you mean '" + path + "'?"));
  }
  EXPECT_THAT(refusal(root_.file("rum/ckpt")), HasSubstr("'" + path + "'?"));
  EXPECT_THAT(refusal(root_.file("far_away")), Not(HasSubstr("did you mean")));
  EXPECT_THAT(refusal(""), HasSubstr("'' does not exist"));
  const fs::path before = fs::current_path();
  fs::create_directories(root_.file("runs/a"));
  fs::current_path(root_.path());
  EXPECT_THAT(refusal("a"), HasSubstr("did you mean 'runs/a'?"));
  EXPECT_THAT(refusal("rum"), HasSubstr("did you mean 'run'?"));
  fs::current_path(before);
}

TEST_F(RunFolders, WhoseCheckpointsCannotBeLookedAtAreLeftAlone) {
  const std::string path = make_run();
  write_file(path + "/metrics.jsonl", "60");
  fs::remove_all(path + "/ckpt");
  fs::create_directory_symlink("ckpt", path + "/ckpt");  // stat fails: a loop
  EXPECT_THROW(open(OnExisting::kResume), StorageError);
  EXPECT_EQ(testing::read_file(path + "/metrics.jsonl"), "60");
}

TEST_F(RunFolders, NameWhatCannotBeCreated) {
  const std::unique_ptr<Communicator> world = make_self_communicator();
  write_file(root_.file("file"), "");
  try {
    open_run_folder(root_.file("file/run"), OnExisting::kFail, *world, files_, ignore);
    ADD_FAILURE() << "created a folder below a file";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(root_.file("file")));
    EXPECT_THAT(error.hint(), HasSubstr("run.root"));
  }
}

TEST(RunFolderRanks, AreTheSameOnAllRanks) {
  const ScratchFolder root;
  testing::run_ranks(3, [&root](Communicator& world) {
    PosixFileSystem files;
    const auto open = [&](OnExisting policy) {
      return open_run_folder(root.file("run"), policy, world, files, ignore);
    };
    const RunFolder folder = open(OnExisting::kNew);
    EXPECT_EQ(folder.path, root.file("run"));
    EXPECT_EQ(folder.lock != nullptr, world.rank() == 0);
    if (world.rank() == 0) write_file(root.file("run/resolved.yaml"), "x");
    EXPECT_THROW(open(OnExisting::kFail), ConfigError);
    try {
      open(OnExisting::kResume);
      ADD_FAILURE() << "locked twice";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kBusy);
      EXPECT_THAT(error.hint(), HasSubstr("run.name"));
    }
  });
}

}  // namespace
}  // namespace shoal
