#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// Reads the integer at the beginning of a file in /proc or /sys; nullopt without one ("max").
std::optional<int64_t> number_in(const std::string& file);

/// Returns the value of the first line `key: value` of a file such as /proc/cpuinfo, else "".
std::string value_after(const std::string& file, const std::string& key);

/// Model name of each GPU, as the driver reports it below `proc` (/proc); "" if it gives none.
std::vector<std::string> gpu_models(const std::string& proc);

/// Folders of all control groups (cgroups, by which containers limit resources) that limit this
/// process: its own and all above it up to the root, of cgroup version 2 and of the `controller`
/// ("memory" or "cpu") of version 1. Some may not exist, since a container sees its own group as
/// the root. `proc`, `sys`: /proc and /sys, replaceable in tests.
std::vector<std::string> control_groups(const std::string& controller, const std::string& proc,
                                        const std::string& sys);

}  // namespace shoal
