#include "launch/job/failure.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <vector>

#include "tests/support/thread_communicator.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

template <typename Exception>
Failure describe(const Exception& exception, std::optional<int64_t> rank) {
  return describe_failure(std::make_exception_ptr(exception), rank);
}

TEST(Failure, TellsCodeRankTextAndNextStep) {
  const Failure failure = describe(DataError("a.bin: too short", "fetch it again"), 3);
  EXPECT_EQ(failure.code, ExitCode::kData);
  EXPECT_EQ(failure.text, "error[E13] rank=3: a.bin: too short; fetch it again");
}

TEST(Failure, OfAProcessThatRunsAloneNamesNoRank) {
  EXPECT_EQ(describe(DataError("a.bin: too short"), std::nullopt).text,
            "error[E13] a.bin: too short");
}

TEST(Failure, ShowsNoEscapeCodes) {
  EXPECT_EQ(describe(DataError("tensor \x1b[2J\x7f"), 0).text, "error[E13] rank=0: tensor  [2J ");
}

TEST(Failure, ListsAllMistakesOfARecipeWithoutARank) {
  const Failure failure =
      describe(ConfigError(std::vector<std::string>{"r:1:1: a", "r:2:1: b"}), 3);
  EXPECT_EQ(failure.code, ExitCode::kRecipe);
  EXPECT_EQ(failure.text, "error[E10] r:1:1: a\nerror[E10] r:2:1: b");
}

TEST(Failure, CallsWhatItDoesNotKnowInternal) {
  EXPECT_EQ(describe(std::runtime_error("odd"), 0).code, ExitCode::kInternal);
  EXPECT_EQ(describe(7, 0).code, ExitCode::kInternal);
}

TEST(Failure, OfAnAllocationTellsWhereHowMuchAndWhatToLower) {
  const auto failed = std::make_exception_ptr(
      c10::Error(c10::SourceLocation{"alloc_cpu", "alloc_cpu.cpp", 118},
                 "DefaultCPUAllocator: can't allocate memory: you tried to allocate 3221225472 "
                 "bytes. Error code 12 (Cannot allocate memory)"));
  const Failure failure = describe_failure(locate_allocation(failed, "step 7, backward pass"), 3);
  EXPECT_EQ(failure.code, ExitCode::kTopology);
  EXPECT_THAT(failure.text, HasSubstr("error[E11] rank=3: step 7, backward pass: out of memory: "
                                      "3.0 GiB more were asked for (3221225472 bytes); lower "
                                      "train.batch or raise train.accumulate"));
}

TEST(Failure, OfAGpusAllocationKeepsItsNumbers) {
  const auto failed = std::make_exception_ptr(c10::OutOfMemoryError(
      c10::SourceLocation{"malloc", "CUDACachingAllocator.cpp", 1},
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free."));
  const Failure failure = describe_failure(failed, 0);
  EXPECT_EQ(failure.code, ExitCode::kTopology);
  EXPECT_THAT(failure.text, HasSubstr("Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free."));
  EXPECT_THAT(failure.text, HasSubstr("use a machine with more memory"));
  EXPECT_THAT(failure.text, Not(HasSubstr("train.batch"))) << "of any command";
}

TEST(Failure, OfAnAllocationOutsideLibTorchIsOneToo) {
  EXPECT_EQ(describe(std::bad_alloc(), 0).code, ExitCode::kTopology);
}

TEST(Failure, ThatIsNoAllocationStaysAsItIs) {
  const auto error = std::make_exception_ptr(DataError("a.bin: too short"));
  EXPECT_EQ(locate_allocation(error, "step 7"), error);
}

TEST(Failure, OfOneRankEndsTheJobWithItsCode) {
  try {
    testing::run_ranks(2, [](Communicator& world) {
      run_on_ranks(world, [&] {
        if (world.rank() == 1) throw Error(ExitCode::kNumeric, "only here");
        world.barrier();
        return ExitCode::kOk;
      });
    });
    ADD_FAILURE() << "the job went on";
  } catch (const testing::ThreadRankAborted& aborted) {
    EXPECT_EQ(aborted.exit_code, static_cast<int>(ExitCode::kNumeric));
  }
}

class EndOfJob : public ::testing::Test {
 protected:
  EndOfJob() { pthread_sigmask(SIG_SETMASK, nullptr, &former_); }
  ~EndOfJob() override { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  sigset_t former_{};
};

TEST_F(EndOfJob, IsToldByASignalFromTheLauncher) {
  for (const int number : {SIGCONT, SIGTERM}) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_BLOCK, &one, nullptr);
    raise(number);
    EXPECT_TRUE(wait_for_end_of_job(std::chrono::seconds(60))) << number;
  }
}

TEST_F(EndOfJob, IsNotAwaitedForEver) {
  EXPECT_FALSE(wait_for_end_of_job(std::chrono::milliseconds(5)));
}

}  // namespace
}  // namespace shoal
