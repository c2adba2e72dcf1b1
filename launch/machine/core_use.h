#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"

namespace shoal {

/// Cores are reported as shared if threads get less than this share of them.
constexpr double kLeastCoreShare = 0.85;

/// Cores available to the threads of a machine's ranks, at the start of a job.
struct CoreUse {
  int64_t ranks = 1;      ///< ranks of this job on the machine
  int64_t threads = 1;    ///< threads of each rank
  double cores = 1;       ///< CPUs they may use together, within the limits of a container
  double core_share = 1;  ///< measured CPU time over what they could have used
};

/// Limit of this process's control groups in CPUs, the least of all levels; nothing without a
/// limit. `proc`, `sys`: /proc and /sys; tests pass others.
std::optional<double> cpu_limit(const std::string& proc, const std::string& sys);

/// The cores that this rank sees, with a core share of 1. `threads`: its own; `proc` and `sys`:
/// /proc and /sys; tests pass others.
CoreUse look_at_cores(const LaunchInfo& launch, int64_t threads, const std::string& proc = "/proc",
                      const std::string& sys = "/sys");

/// Warnings about slow training: more threads than cores, or other jobs on the cores.
std::vector<std::string> core_warnings(const CoreUse& use);

}  // namespace shoal
