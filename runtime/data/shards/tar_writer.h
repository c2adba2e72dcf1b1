#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Writing of tar archives, the bytes a function of names and sizes alone: time and owner are 0,
/// the mode is 0644.
namespace shoal {

/// What precedes the bytes of a regular file: a POSIX ustar header and, before it, an extended one
/// (pax) for a name or a size that has no room there.
std::string tar_header(const std::string& name, int64_t size);

/// What follows `size` bytes up to the border of a block.
std::string tar_padding(int64_t size);

/// What ends an archive.
std::string tar_end();

}  // namespace shoal
