#pragma once

#include <cstdint>
#include <string>

namespace shoal {

/// Memory that programs of this machine may use, in bytes.
struct MachineMemory {
  int64_t total = 0;
  int64_t available = 0;  ///< to more of it than is used now
};

/// The least of what the machine has, what its control group may take (cgroup v2) and what this
/// process may (`ulimit -v`). `root`: where /proc and /sys lie; tests have another.
MachineMemory machine_memory(const std::string& root = "");

}  // namespace shoal
