#include "launch/runs/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/failing_file_system.h"
#include "tests/support/failing_reads.h"
#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FailingFileSystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;
using testing::write_file;

class RunLockTest : public ::testing::Test {
 protected:
  ScratchFolder scratch_;
  PosixFileSystem files_;
  std::vector<std::string> told_;
  std::string path_ = scratch_.file(".lock");
  RunLockOptions quick_{std::chrono::milliseconds(5), std::chrono::milliseconds(600)};

  std::unique_ptr<RunLock> acquire() {
    return std::make_unique<RunLock>(
        scratch_.path(), files_, [this](const std::string& text) { told_.push_back(text); },
        quick_);
  }
  std::string refusal() {
    try {
      acquire();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kBusy);
      return error.what();
    }
    return "";
  }
};

TEST_F(RunLockTest, IsGoneIfItsThreadIsRefused) {
  testing::refuses_threads = true;
  try {
    acquire();
    ADD_FAILURE() << "acquired";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kTopology);
  }
  testing::refuses_threads = false;
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(refusal(), "");
}

TEST_F(RunLockTest, IsHeldByOneAndGoneAfterwards) {
  {
    const auto lock = acquire();
    EXPECT_THAT(refusal(), AllOf(HasSubstr("process " + std::to_string(::getpid())),
                                 HasSubstr(LockOwner::self().host)));
    EXPECT_TRUE(std::filesystem::exists(path_));
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(refusal(), "");
  EXPECT_TRUE(told_.empty());
}

TEST_F(RunLockTest, IsTakenOverFromADeadProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = acquire();
    ::_exit(0);  // without the destructor
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_THAT(read_file(path_), HasSubstr("pid " + std::to_string(child)));
  const auto lock = acquire();
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0], HasSubstr("process " + std::to_string(child)));
  EXPECT_THAT(read_file(path_), HasSubstr("pid " + std::to_string(::getpid())));
}

TEST_F(RunLockTest, IsTakenOverFromADeadProcessThatNobodyWaitedFor) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = acquire();
    ::_exit(0);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(told_.size(), 1u);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(RunLockTest, IsTakenOverWhenTheProcessNumberWasGivenAgain) {
  LockOwner owner = LockOwner::self();
  owner.started -= 1;
  write_file(path_, owner.text());
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(RunLockTest, IsRespectedWithoutTheKernelsLockWhileTheProcessLives) {
  write_file(path_, LockOwner::self().text());
  EXPECT_THAT(refusal(), HasSubstr("in use by process"));
}

TEST_F(RunLockTest, IsLiveWhileItsOwnerMayRun) {
  EXPECT_FALSE(live_owner(scratch_.path()));
  {
    const auto lock = acquire();
    EXPECT_TRUE(live_owner(scratch_.path()));
  }
  LockOwner owner = LockOwner::self();
  owner.started -= 1;
  write_file(path_, owner.text());
  EXPECT_FALSE(live_owner(scratch_.path()));
  owner.host = "elsewhere";
  write_file(path_, owner.text());
  EXPECT_TRUE(live_owner(scratch_.path()));
  write_file(path_, "host");
  EXPECT_FALSE(live_owner(scratch_.path()));
}

TEST_F(RunLockTest, OfAnotherHostIsRespectedWhileItsLeaseGrows) {
  LockOwner owner = LockOwner::self();
  owner.host = "elsewhere";
  write_file(path_, owner.text());
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    write_file(path_, owner.text() + ".");
  });
  const RunLockOptions once = quick_;
  quick_ = {std::chrono::milliseconds(5), std::chrono::minutes(2)};
  EXPECT_THAT(refusal(), HasSubstr("'elsewhere'"));
  other.join();
  quick_ = once;
  EXPECT_EQ(refusal(), "");
  const auto waits = [](const std::string& time) {
    return AllOf(HasSubstr("waiting up to " + time), HasSubstr("on host 'elsewhere'"));
  };
  EXPECT_THAT(told_, ElementsAre(waits("120s"), waits("1s"), HasSubstr("taking over")));
}

TEST_F(RunLockTest, FromBeforeARebootIsTakenOverWithoutWaiting) {
  quick_.self = [] {
    LockOwner self = LockOwner::self();
    self.machine = "this";
    return self;
  };
  LockOwner owner = quick_.self();
  owner.boot = "earlier";
  write_file(path_, owner.text());
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(100'000);
  std::filesystem::last_write_time(path_, long_ago);
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(told_, ElementsAre(HasSubstr("taking over")));
}

// Two machines of one image may have one name and one id; a lock that was written to since this one
// was started is watched.
TEST_F(RunLockTest, FromAnotherBootIsWatchedIfItIsFresh) {
  quick_.self = [] {
    LockOwner self = LockOwner::self();
    self.machine = "this";
    return self;
  };
  LockOwner owner = quick_.self();
  owner.boot = "another";
  write_file(path_, owner.text());
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(told_, ElementsAre(HasSubstr("waiting up to"), HasSubstr("taking over")));
}

TEST(LockOwnerTest, RanBeforeARebootOnlyOnAMachineThatIsKnownToBeTheSame) {
  const LockOwner now{"a", "boot 2", "machine 1", 1, 1};
  const auto before = [&now](const LockOwner& owner) { return owner.ran_before_reboot_of(now); };
  EXPECT_TRUE(before({"a", "boot 1", "machine 1", 1, 1}));
  EXPECT_FALSE(before({"a", "boot 2", "machine 1", 1, 1}));
  EXPECT_FALSE(before({"b", "boot 1", "machine 1", 1, 1}));
  EXPECT_FALSE(before({"a", "boot 1", "machine 2", 1, 1}));
  EXPECT_FALSE((LockOwner{"a", "1", "", 1, 1}.ran_before_reboot_of({"a", "2", "", 1, 1})));
}

TEST(LockOwnerTest, IsReadAsItWasWritten) {
  for (const char* machine : {"0123abcd", ""}) {
    const LockOwner owner{"a", "boot", machine, 12, 34};
    const std::optional<LockOwner> read = LockOwner::parse(owner.text() + "...");
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->text(), owner.text());
    EXPECT_EQ(read->machine, machine);
  }
}

TEST_F(RunLockTest, LetsItsLeaseGrow) {
  const auto lock = acquire();
  const size_t before = read_file(path_).size();
  for (int i = 0; i < 12'000 && read_file(path_).size() < before + 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GE(read_file(path_).size(), before + 2);
  EXPECT_TRUE(LockOwner::parse(read_file(path_)).has_value());
}

TEST_F(RunLockTest, IsTakenOverWhenItsTextIsNotComplete) {
  write_file(path_, "host a\npid");
  EXPECT_EQ(refusal(), "");
}

TEST_F(RunLockTest, TellsWhyItCannotBeWritten) {
  for (int64_t at = 0; at < 3; ++at) {
    FailingFileSystem full;
    full.fail_at = at;
    full.error = ENOSPC;
    try {
      const RunLock lock(scratch_.path(), full, [](const std::string&) {});
      ADD_FAILURE() << at;
    } catch (const StorageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_));
    }
  }
}

}  // namespace
}  // namespace shoal
