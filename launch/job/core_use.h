#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"

namespace shoal {

/// What the threads of a machine's ranks have to run on, at the start of a job.
struct CoreUse {
  int64_t ranks = 1;    ///< of this job, that share the cores below
  int64_t threads = 1;  ///< of each of them
  double cores = 1;     ///< CPUs that they may use, limits of a container included
  /// Of the whole machine, where they are known: CPUs, the load average of the last minute, and the
  /// threads that run at this moment, this job's among them.
  int64_t machine_cpus = 0;
  std::optional<double> load = {};
  int64_t running = 0;
  int64_t own_running = 1;  ///< of those: the job's ranks on this machine
};

/// CPUs' worth of time that the control groups of this process allow, the least of all levels;
/// nothing without a limit. `proc`, `sys`: /proc and /sys; tests have others.
std::optional<double> cpu_limit(const std::string& proc, const std::string& sys);

/// As this rank sees it. `threads`: its own; `proc` and `sys`: /proc and /sys; tests have others.
CoreUse look_at_cores(const LaunchInfo& launch, int64_t threads, const std::string& proc = "/proc",
                      const std::string& sys = "/sys");

/// What makes training slow there: more threads than cores, and other jobs on the cores.
std::vector<std::string> core_warnings(const CoreUse& use);

}  // namespace shoal
