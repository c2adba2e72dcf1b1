#pragma once

#include <cstdint>
#include <string>

/// Parts of tar archives, whose bytes depend on names and sizes only: time and owner 0, mode 0644.
namespace shoal {

/// Returns what precedes a regular file's bytes: a POSIX ustar header and, for a name or size that
/// does not fit there, an extended one (pax) before it.
std::string tar_header(const std::string& name, int64_t size);

/// Returns the zeros after a member of `size` bytes, up to a whole block of 512 bytes.
std::string tar_padding(int64_t size);

/// Returns the blocks that end an archive.
std::string tar_end();

}  // namespace shoal
