#include "launch/job/machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

namespace shoal {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// The number behind `key` in lines of `Key:  123 kB`; nothing if there is none.
std::optional<int64_t> kilobytes_of(const std::string& file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string word; stream >> word;) {
    int64_t kilobytes = 0;
    if (word == key && stream >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

/// A file of one number; unlimited for "max" and where there is no such file.
int64_t number_in(const std::string& file) {
  std::ifstream stream(file);
  int64_t number = 0;
  return stream >> number ? number : kUnlimited;
}

/// Of the address space; what is mapped already counts as used.
MachineMemory limit_of_process() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return {kUnlimited, kUnlimited};
  }
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  const auto total = static_cast<int64_t>(limit.rlim_cur);
  return {total, std::max<int64_t>(0, total - pages * sysconf(_SC_PAGESIZE))};
}

}  // namespace

MachineMemory machine_memory(const std::string& root) {
  const std::string info = root + "/proc/meminfo", group = root + "/sys/fs/cgroup/memory.";
  MachineMemory memory{kilobytes_of(info, "MemTotal:").value_or(kUnlimited),
                       kilobytes_of(info, "MemAvailable:").value_or(kUnlimited)};
  const int64_t most = number_in(group + "max");
  if (most != kUnlimited) {
    const int64_t used = std::min(most, number_in(group + "current"));
    memory = {std::min(memory.total, most), std::min(memory.available, most - used)};
  }
  const MachineMemory own = limit_of_process();
  return {std::min(memory.total, own.total), std::min(memory.available, own.available)};
}

}  // namespace shoal
