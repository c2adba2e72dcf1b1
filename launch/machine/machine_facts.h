#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"

namespace shoal {

/// Reads the integer at the beginning of a file in /proc or /sys; nullopt without one ("max").
std::optional<int64_t> number_in(const std::string& file);

/// Returns the value of the first line `key: value` of a file such as /proc/cpuinfo, else "".
std::string value_after(const std::string& file, const std::string& key);

/// Model name of each GPU, as the driver reports it below `proc` (/proc); "" if it gives none.
std::vector<std::string> gpu_models(const std::string& proc);

/// Memory available to programs on this machine.
struct MachineMemory {
  int64_t total_bytes = 0;      ///< usable memory, within all limits
  int64_t available_bytes = 0;  ///< free part of the total
  int64_t installed_bytes = 0;  ///< physical memory, regardless of limits
};

/// Determines the memory within the lowest of all limits: physical memory, control groups (versions
/// 1 and 2) and address space (`ulimit -v`). Reclaimable page cache counts as available. `proc`,
/// `sys`: /proc and /sys, replaceable in tests.
MachineMemory machine_memory(const std::string& proc = "/proc", const std::string& sys = "/sys");

/// Resident memory of this process, from /proc.
int64_t resident_bytes();

/// CPU share below which a warning reports that other programs use the cores.
constexpr double kLeastCoreShare = 0.85;

/// CPU cores of a machine and their use by this job's ranks, at the start of the job.
struct CoreUse {
  int64_t ranks = 1;      ///< ranks of this job on these cores
  int64_t threads = 1;    ///< threads per rank
  double cores = 1;       ///< usable CPUs, within container limits
  double core_share = 1;  ///< CPU time of the threads over the time that they could have used
};

/// CPU limit of this process's control groups, in CPUs: the lowest of all levels; nullopt: no
/// limit. `proc`, `sys`: /proc and /sys, replaceable in tests.
std::optional<double> cpu_limit(const std::string& proc, const std::string& sys);

/// Determines the CoreUse of this rank's machine. core_share stays 1; a caller may set it to the
/// one that time_products (peak_rate.h) measures. `threads`: of this rank; `proc`, `sys`: as above.
CoreUse look_at_cores(const LaunchInfo& launch, int64_t threads, const std::string& proc = "/proc",
                      const std::string& sys = "/sys");

/// Warnings about slow training: more threads than cores, or core_share below kLeastCoreShare.
std::vector<std::string> core_warnings(const CoreUse& use);

}  // namespace shoal
