#include "launch/job/machine_memory.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/scratch_folder.h"

namespace shoal {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

class MachineMemoryTest : public ::testing::Test {
 protected:
  MachineMemoryTest() {
    std::filesystem::create_directories(scratch_.file("proc"));
    std::filesystem::create_directories(scratch_.file("sys/fs/cgroup"));
    testing::write_file(scratch_.file("proc/meminfo"),
                        "MemTotal:        8388608 kB\nMemFree:          100 kB\n"
                        "MemAvailable:    6291456 kB\n");
  }
  void limit_group(const std::string& most, const std::string& used) {
    testing::write_file(scratch_.file("sys/fs/cgroup/memory.max"), most + "\n");
    testing::write_file(scratch_.file("sys/fs/cgroup/memory.current"), used + "\n");
  }
  testing::ScratchFolder scratch_;
};

TEST_F(MachineMemoryTest, IsTheMachines) {
  const MachineMemory memory = machine_memory(scratch_.path());
  EXPECT_EQ(memory.total, 8 * kGiB);
  EXPECT_EQ(memory.available, 6 * kGiB);
}

TEST_F(MachineMemoryTest, IsAtMostThatOfTheControlGroup) {
  limit_group("4294967296", "1073741824");
  EXPECT_EQ(machine_memory(scratch_.path()).total, 4 * kGiB);
  EXPECT_EQ(machine_memory(scratch_.path()).available, 3 * kGiB);
  limit_group("max", "1073741824");
  EXPECT_EQ(machine_memory(scratch_.path()).available, 6 * kGiB);
}

TEST_F(MachineMemoryTest, OfThisMachineIsThere) {
  EXPECT_GT(machine_memory().available, 0);
  EXPECT_GE(machine_memory().total, machine_memory().available);
}

}  // namespace
}  // namespace shoal
