#pragma once

#include <cstdint>
#include <string>

namespace shoal {

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

}  // namespace shoal
