#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"

namespace shoal {

/// Cores of which the threads got a smaller share are called shared.
constexpr double kLeastCoreShare = 0.85;

/// What the threads of a machine's ranks have to run on, at the start of a job.
struct CoreUse {
  int64_t ranks = 1;      ///< of this job, that share the cores below
  int64_t threads = 1;    ///< of each of them
  double cores = 1;       ///< CPUs that they may use, limits of a container included
  double core_share = 1;  ///< CPU time that they got over what they could have used, as measured
};

/// CPUs' worth of time that the control groups of this process allow, the least of all levels;
/// nothing without a limit. `proc`, `sys`: /proc and /sys; tests have others.
std::optional<double> cpu_limit(const std::string& proc, const std::string& sys);

/// As this rank sees it, with a core share of 1. `threads`: its own; `proc` and `sys`: /proc and
/// /sys; tests have others.
CoreUse look_at_cores(const LaunchInfo& launch, int64_t threads, const std::string& proc = "/proc",
                      const std::string& sys = "/sys");

/// What makes training slow there: more threads than cores, and other jobs on the cores.
std::vector<std::string> core_warnings(const CoreUse& use);

}  // namespace shoal
