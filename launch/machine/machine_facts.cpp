#include "launch/machine/machine_facts.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include "runtime/base/text.h"

namespace shoal {
namespace {

/// Adds the folder `path`, as "/a/b", below `root`, and all its parents except the root.
void add_levels(const std::string& root, std::string path, std::vector<std::string>& folders) {
  while (path.size() > 1 && path.front() == '/') {
    folders.push_back(root + path);
    path.erase(path.rfind('/'));
  }
}

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

/// Folders of all control groups (cgroups, by which containers limit resources) that limit this
/// process: its own and all above it up to the root, of cgroup version 2 and of the `controller`
/// ("memory" or "cpu") of version 1. Some may not exist, since a container sees its own group as
/// the root.
std::vector<std::string> control_groups(const std::string& controller, const std::string& proc,
                                        const std::string& sys) {
  const std::string root = sys + "/fs/cgroup", root_v1 = root + "/" + controller;
  std::vector<std::string> folders{root, root_v1};
  // Lines of `0::/path` (version 2) and `3:cpu,cpuacct:/path` (version 1).
  std::ifstream lines(proc + "/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (names == ",,") add_levels(root, path, folders);
    if (names.find(fmt::format(",{},", controller)) != std::string::npos) {
      add_levels(root_v1, path, folders);
    }
  }
  return folders;
}

/// CPU limit of one control group, version 2 or 1, in CPUs; nullopt: no limit.
std::optional<double> cpu_limit_of_group(const std::string& folder) {
  double quota = 0, period = 0;
  if (std::ifstream stream(folder + "/cpu.max"); stream) {
    if (!(stream >> quota >> period)) return std::nullopt;  // "max 100000"
  } else {
    quota = static_cast<double>(number_in(folder + "/cpu.cfs_quota_us").value_or(0));
    period = static_cast<double>(number_in(folder + "/cpu.cfs_period_us").value_or(0));
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

std::string threads_text(const CoreUse& use) {
  const std::string threads = counted(use.threads, "thread");
  return use.ranks == 1 ? threads : fmt::format("{} of {}", counted(use.ranks, "rank"), threads);
}

std::string number_text(double number) {
  return number == std::floor(number) ? fmt::format("{:.0f}", number)
                                      : fmt::format("{:.1f}", number);
}

}  // namespace

std::optional<int64_t> number_in(const std::string& file) {
  std::ifstream stream(file);
  int64_t number = 0;
  if (!(stream >> number)) return std::nullopt;
  return number;
}

std::string value_after(const std::string& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    if (line.find_last_not_of(" \t", colon - 1) + 1 != key.size()) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::vector<std::string> gpu_models(const std::string& proc) {
  std::vector<std::string> models;
  std::error_code ignored;
  for (std::filesystem::directory_iterator gpu(proc + "/driver/nvidia/gpus", ignored), end;
       gpu != end; gpu.increment(ignored)) {
    models.push_back(value_after(gpu->path() / "information", "Model"));
  }
  return models;
}

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

std::optional<double> cpu_limit(const std::string& proc, const std::string& sys) {
  std::optional<double> least;
  for (const std::string& folder : control_groups("cpu", proc, sys)) {
    const std::optional<double> limit = cpu_limit_of_group(folder);
    if (limit && (!least || *limit < *least)) least = limit;
  }
  return least;
}

CoreUse look_at_cores(const LaunchInfo& launch, int64_t threads, const std::string& proc,
                      const std::string& sys) {
  CoreUse use;
  use.threads = threads;
  use.ranks = launch.bound ? 1 : launch.local_size;
  use.cores = static_cast<double>(choose_threads(std::nullopt, LaunchInfo{}));
  // A container's limit applies to all its ranks, even if they are bound to cores.
  const std::optional<double> limit = cpu_limit(proc, sys);
  const double own_limit = limit.value_or(0) * static_cast<double>(use.ranks) /
                           static_cast<double>(std::max<int64_t>(1, launch.local_size));
  if (limit) use.cores = std::min(use.cores, own_limit);
  return use;
}

std::vector<std::string> core_warnings(const CoreUse& use) {
  const auto ranks = static_cast<double>(use.ranks), threads = static_cast<double>(use.threads);
  const bool is_crowded = ranks * threads > use.cores + 0.01;
  if (is_crowded && use.threads > 1) {
    const auto fitting = std::max<int64_t>(1, static_cast<int64_t>(use.cores / ranks));
    return {fmt::format(
        "{} on {} {}: threads that wait for each other and for a core can make training more than "
        "ten times slower; set run.threads={}",
        threads_text(use), number_text(use.cores), use.cores == 1 ? "core" : "cores", fitting)};
  }
  if (is_crowded || use.core_share >= kLeastCoreShare) return {};
  return {fmt::format(
      "other jobs run on these cores: {} got {:.0f}% of the time asked for. Training is slower, "
      "and its times are not those of a machine of its own{}",
      threads_text(use), 100 * use.core_share,
      use.threads > 1 ? "; threads that wait for each other can make it more than ten times "
                        "slower: set run.threads=1"
                      : "")};
}

}  // namespace shoal
