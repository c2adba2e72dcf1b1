#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// The whole number that a file, as those of /proc and /sys, begins with; nothing without one, as
/// for "max".
std::optional<int64_t> number_in(const std::string& file);

/// What follows `key` and a colon at the beginning of a line of the file; "" if nothing does.
std::string value_after(const std::string& file, const std::string& key);

/// The GPUs of this machine as their driver names them; "" for one without a name.
std::vector<std::string> gpu_models(const std::string& proc);

/// Folders of the control groups that this process is in and whose limits hold for it: its own, all
/// above it and the root, of version 2 and of version 1's `controller` (memory, cpu). Some may not
/// be there, since a container sees its own group as the root. `proc`, `sys`: /proc and /sys.
std::vector<std::string> control_groups(const std::string& controller, const std::string& proc,
                                        const std::string& sys);

}  // namespace shoal
