#pragma once

#include <cstdint>
#include <string>

namespace shoal {

/// Memory that programs of this machine may use.
struct MachineMemory {
  int64_t total_bytes = 0;      ///< within all limits
  int64_t available_bytes = 0;  ///< of it: what programs can still take
  int64_t installed_bytes = 0;  ///< what the machine has, limits aside
};

/// The least of what the machine has, of the limits of this process's control groups (versions 1
/// and 2) and of its address space (`ulimit -v`). Page cache that the system can take back counts
/// as available. `proc`, `sys`: /proc and /sys; tests have others.
MachineMemory machine_memory(const std::string& proc = "/proc", const std::string& sys = "/sys");

/// Resident memory of this process, from /proc.
int64_t resident_bytes();

}  // namespace shoal
