#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// Reads the integer at the beginning of a file, such as those of /proc and /sys; nullopt if there
/// is none, as for "max".
std::optional<int64_t> number_in(const std::string& file);

/// Returns the value of the first line `key: value` of the file; "" without one.
std::string value_after(const std::string& file, const std::string& key);

/// Names of this machine's GPUs as reported by the driver; "" for a GPU without a name.
std::vector<std::string> gpu_models(const std::string& proc);

/// Folders of all control groups that limit this process: its own and all above it up to the root,
/// of version 2 and of version 1's `controller` (memory, cpu). Some may not exist, since a
/// container sees its own group as the root. `proc`, `sys`: /proc and /sys.
std::vector<std::string> control_groups(const std::string& controller, const std::string& proc,
                                        const std::string& sys);

}  // namespace shoal
