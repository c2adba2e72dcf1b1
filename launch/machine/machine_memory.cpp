#include "launch/machine/machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <vector>

#include "launch/machine/machine_facts.h"

namespace shoal {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// The number after `key` in lines of the form `key 123`; nullopt if there is none.
std::optional<int64_t> number_behind(const std::string& file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string word; stream >> word;) {
    int64_t number = 0;
    if (word == key && stream >> number) return number;
  }
  return std::nullopt;
}

/// The number of KiB after `key`, converted to bytes.
int64_t memory_info(const std::string& proc, const std::string& key) {
  const std::optional<int64_t> kibibytes = number_behind(proc + "/meminfo", key);
  return kibibytes ? *kibibytes * 1024 : kUnlimited;
}

/// Memory left by a control group's limit. Inactive file cache counts as free: the system drops it.
MachineMemory memory_limit_of_group(const std::string& folder) {
  const std::string group = folder + "/memory.";
  const bool is_v2 = number_in(group + "max").has_value();
  const std::optional<int64_t> most = number_in(group + (is_v2 ? "max" : "limit_in_bytes"));
  if (!most) return {kUnlimited, kUnlimited};
  const int64_t current = number_in(group + (is_v2 ? "current" : "usage_in_bytes")).value_or(0);
  const int64_t cache =
      number_behind(group + "stat", is_v2 ? "inactive_file" : "total_inactive_file").value_or(0);
  return {*most, *most - std::clamp<int64_t>(current - cache, 0, *most)};
}

/// Limit of this process's address space; mapped memory counts as used.
MachineMemory memory_limit_of_process() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return {kUnlimited, kUnlimited};
  }
  const int64_t pages = number_in("/proc/self/statm").value_or(0);
  const auto total = static_cast<int64_t>(limit.rlim_cur);
  return {total, std::max<int64_t>(0, total - pages * sysconf(_SC_PAGESIZE))};
}

}  // namespace

MachineMemory machine_memory(const std::string& proc, const std::string& sys) {
  const int64_t installed = memory_info(proc, "MemTotal:");
  MachineMemory memory{installed, memory_info(proc, "MemAvailable:"), installed};
  std::vector<MachineMemory> limits{memory_limit_of_process()};
  for (const std::string& folder : control_groups("memory", proc, sys)) {
    limits.push_back(memory_limit_of_group(folder));
  }
  for (const MachineMemory& limit : limits) {
    memory.total_bytes = std::min(memory.total_bytes, limit.total_bytes);
    memory.available_bytes = std::min(memory.available_bytes, limit.available_bytes);
  }
  return memory;
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages_total = 0, pages_resident = 0;
  statm >> pages_total >> pages_resident;
  return pages_resident * sysconf(_SC_PAGESIZE);
}

}  // namespace shoal
