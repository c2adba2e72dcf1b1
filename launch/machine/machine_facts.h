#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// The integer at the start of a file such as those of /proc and /sys; nothing if there is none, as
/// for "max".
std::optional<int64_t> number_in(const std::string& file);

/// The text after `key:` at the start of a line of the file; "" if there is none.
std::string value_after(const std::string& file, const std::string& key);

/// Names of this machine's GPUs, from their driver; "" for one without a name.
std::vector<std::string> gpu_models(const std::string& proc);

/// Folders of all control groups whose limits apply to this process: its own, all above it and the
/// root, of version 2 and of version 1's `controller` (memory, cpu). Some may be missing, since a
/// container sees its own group as the root. `proc`, `sys`: /proc and /sys.
std::vector<std::string> control_groups(const std::string& controller, const std::string& proc,
                                        const std::string& sys);

}  // namespace shoal
