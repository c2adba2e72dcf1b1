#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"

namespace shoal {

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
