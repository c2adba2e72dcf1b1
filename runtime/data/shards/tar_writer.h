#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Parts of tar archives, whose bytes depend only on names and sizes: time and owner are 0, the
/// mode is 0644.
namespace shoal {

/// Precedes the bytes of a regular file: a POSIX ustar header and, for a name or size that does not
/// fit there, an extended one (pax) before it.
std::string tar_header(const std::string& name, int64_t size);

/// Padding after a member of `size` bytes, up to a whole block.
std::string tar_padding(int64_t size);

/// End-of-archive blocks.
std::string tar_end();

}  // namespace shoal
