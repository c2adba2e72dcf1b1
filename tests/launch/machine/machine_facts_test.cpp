#include "launch/machine/machine_facts.h"

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
  MachineMemory memory() const {
    return machine_memory(scratch_.file("proc"), scratch_.file("sys"));
  }
  void limit_group(const std::string& most, const std::string& used, const std::string& path = "") {
    write("sys/fs/cgroup" + path + "/memory.max", most);
    write("sys/fs/cgroup" + path + "/memory.current", used);
  }
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = scratch_.file(name);
    std::filesystem::create_directories(path.parent_path());
    testing::write_file(path.string(), text + "\n");
  }
  testing::ScratchFolder scratch_;
};

TEST_F(MachineMemoryTest, IsTheMachines) {
  EXPECT_EQ(memory().total_bytes, 8 * kGiB);
  EXPECT_EQ(memory().available_bytes, 6 * kGiB);
}

TEST_F(MachineMemoryTest, IsAtMostThatOfTheControlGroup) {
  limit_group("4294967296", "1073741824");
  EXPECT_EQ(memory().total_bytes, 4 * kGiB);
  EXPECT_EQ(memory().available_bytes, 3 * kGiB);
  limit_group("max", "1073741824");
  EXPECT_EQ(memory().available_bytes, 6 * kGiB);
}

TEST_F(MachineMemoryTest, CountsPageCacheOfTheControlGroupAsAvailable) {
  limit_group("4294967296", "3221225472");
  write("sys/fs/cgroup/memory.stat", "anon 1\ninactive_anon 5\ninactive_file 2147483648\nsock 0");
  EXPECT_EQ(memory().available_bytes, 3 * kGiB);
  limit_group("4294967296", "1073741824");  // less than it: read a moment later
  EXPECT_EQ(memory().available_bytes, 4 * kGiB);
}

TEST_F(MachineMemoryTest, IsTheLeastOfAllLevelsOfControlGroups) {
  write("proc/self/cgroup", "0::/slice/job");
  limit_group("4294967296", "1073741824");
  EXPECT_EQ(memory().available_bytes, 3 * kGiB);
  limit_group("max", "0", "/slice/job");
  limit_group("2147483648", "1073741824", "/slice");
  EXPECT_EQ(memory().total_bytes, 2 * kGiB);
  EXPECT_EQ(memory().available_bytes, kGiB);
  limit_group("1073741824", "1073741824", "/slice/job");
  EXPECT_EQ(memory().total_bytes, kGiB);
  EXPECT_EQ(memory().available_bytes, 0);
  EXPECT_EQ(memory().installed_bytes, 8 * kGiB);
}

TEST_F(MachineMemoryTest, HasLimitsOfTheFirstVersionOfControlGroups) {
  write("proc/self/cgroup", "4:cpu,memory:/job");
  const std::string group = "sys/fs/cgroup/memory/job/memory.";
  write(group + "limit_in_bytes", "2147483648");
  write(group + "usage_in_bytes", "1610612736");
  write(group + "stat", "inactive_file 1\ntotal_inactive_file 536870912");
  EXPECT_EQ(memory().total_bytes, 2 * kGiB);
  EXPECT_EQ(memory().available_bytes, kGiB);
}

TEST_F(MachineMemoryTest, OfThisMachineIsThere) {
  EXPECT_GT(machine_memory().available_bytes, 0);
  EXPECT_GE(machine_memory().total_bytes, machine_memory().available_bytes);
}

}  // namespace
}  // namespace shoal
