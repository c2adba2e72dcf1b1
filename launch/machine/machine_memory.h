#pragma once

#include <cstdint>
#include <string>

namespace shoal {

/// Memory available to programs on this machine.
struct MachineMemory {
  int64_t total_bytes = 0;      ///< within all limits
  int64_t available_bytes = 0;  ///< free part of total_bytes
  int64_t installed_bytes = 0;  ///< physical memory, without limits
};

/// The least of physical memory, the limits of this process's control groups (versions 1 and 2) and
/// of its address space (`ulimit -v`). Page cache that the system can reclaim counts as available.
/// `proc`, `sys`: /proc and /sys; tests pass others.
MachineMemory machine_memory(const std::string& proc = "/proc", const std::string& sys = "/sys");

}  // namespace shoal
