#include "launch/machine/machine_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ScratchFolder;

TEST(CoreUse, OfMoreThreadsThanCoresIsWarnedAbout) {
  CoreUse use{.ranks = 1, .threads = 64, .cores = 2};
  EXPECT_THAT(core_warnings(use), ElementsAre(AllOf(HasSubstr("64 threads on 2 cores"),
                                                    HasSubstr("set run.threads=2"))));
  use = {.ranks = 2, .threads = 2, .cores = 2};
  EXPECT_THAT(core_warnings(use), ElementsAre(AllOf(HasSubstr("2 ranks of 2 threads on 2 cores"),
                                                    HasSubstr("set run.threads=1"))));
  use = {.ranks = 1, .threads = 2, .cores = 0.5};
  EXPECT_THAT(core_warnings(use), ElementsAre(AllOf(HasSubstr("2 threads on 0.5 cores"),
                                                    HasSubstr("set run.threads=1"))));
}

TEST(CoreUse, OfAsManyThreadsAsCoresOrOneEachIsFine) {
  EXPECT_THAT(core_warnings({.ranks = 1, .threads = 2, .cores = 2}), IsEmpty());
  EXPECT_THAT(core_warnings({.ranks = 2, .threads = 4, .cores = 8}), IsEmpty());
  EXPECT_THAT(core_warnings({.ranks = 4, .threads = 1, .cores = 2}), IsEmpty());
}

TEST(CoreUse, WithOtherJobsIsWarnedAbout) {
  CoreUse use{.ranks = 1, .threads = 2, .cores = 8, .core_share = 0.5};
  EXPECT_THAT(core_warnings(use),
              ElementsAre(AllOf(HasSubstr("other jobs"), HasSubstr("2 threads got 50% of the time"),
                                HasSubstr("run.threads=1"))));
  use.threads = 1;
  EXPECT_THAT(core_warnings(use), ElementsAre(Not(HasSubstr("run.threads"))));
  use.core_share = 0.97;
  EXPECT_THAT(core_warnings(use), IsEmpty());
  use = {.ranks = 4, .threads = 1, .cores = 2, .core_share = 0.5};  // the ranks themselves
  EXPECT_THAT(core_warnings(use), IsEmpty());
}

TEST(CoreUse, IsReadFromTheSystem) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.file("fs/cgroup"));
  std::ofstream(scratch.file("fs/cgroup/cpu.max")) << "50000 100000\n";
  LaunchInfo launch;
  launch.local_size = 2;
  CoreUse use = look_at_cores(launch, 3, scratch.path(), scratch.path());
  EXPECT_EQ(use.ranks, 2);
  EXPECT_EQ(use.threads, 3);
  EXPECT_EQ(use.cores, 0.5);
  EXPECT_EQ(use.core_share, 1.0);
  launch.bound = true;
  use = look_at_cores(launch, 3, scratch.path(), scratch.path());
  EXPECT_EQ(use.ranks, 1);
  EXPECT_EQ(use.cores, 0.25);  // its half of the limit
  std::ofstream(scratch.file("fs/cgroup/cpu.max")) << "max 100000\n";
  use = look_at_cores(launch, 3, scratch.file("none"), scratch.path());
  EXPECT_EQ(use.cores, static_cast<double>(choose_threads(std::nullopt, LaunchInfo{})));
}

TEST(CoreUse, IsWithinTheLeastLimitOfAllLevelsOfControlGroups) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.file("self"));
  std::filesystem::create_directories(scratch.file("fs/cgroup/slice/job"));
  std::ofstream(scratch.file("self/cgroup")) << "4:memory:/elsewhere\n0::/slice/job\n";
  std::ofstream(scratch.file("fs/cgroup/slice/job/cpu.max")) << "max 100000\n";
  EXPECT_EQ(cpu_limit(scratch.path(), scratch.path()), std::nullopt);
  std::ofstream(scratch.file("fs/cgroup/slice/cpu.max")) << "200000 100000\n";
  EXPECT_EQ(cpu_limit(scratch.path(), scratch.path()), 2.0);
  std::ofstream(scratch.file("fs/cgroup/slice/job/cpu.max")) << "300000 100000\n";
  EXPECT_EQ(cpu_limit(scratch.path(), scratch.path()), 2.0);
}

}  // namespace
}  // namespace shoal
