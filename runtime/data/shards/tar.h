#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shoal {

/// A regular file in a tar archive.
struct TarMember {
  std::string name;    ///< as in the archive
  int64_t offset = 0;  ///< of its first byte in the archive
  int64_t size = 0;    ///< bytes
  bool operator==(const TarMember&) const = default;
};

/// Size of a tar block: each header is one, and a member's bytes are padded to whole blocks.
inline constexpr int64_t kTarBlockBytes = 512;

/// Lists the regular files of a tar archive in order; formats ustar, pax and GNU, with their long
/// names and sizes. Folders and global pax headers are skipped. Nothing is extracted.
///
/// Archives are not trusted. Refused are names that are absolute, have a component "..", or are
/// longer than 4 KiB; links, devices, FIFOs, sparse files and other kinds of members; wrong
/// checksums and numbers; a member that reaches past the end, a truncated archive, bytes after its
/// end, and an archive without files. Allocations are in proportion to the archive's size. `path`:
/// for messages. Throws: DataError with the byte and the member.
std::vector<TarMember> list_tar(std::span<const std::byte> archive, const std::string& path);

// Parts of tar archives, whose bytes depend on names and sizes only: time and owner 0, mode 0644.

/// Returns what precedes a regular file's bytes: a POSIX ustar header and, for a name or size that
/// does not fit there, an extended one (pax) before it.
std::string tar_header(const std::string& name, int64_t size);

/// Returns the zeros after a member of `size` bytes, up to a whole block of 512 bytes.
std::string tar_padding(int64_t size);

/// Returns the blocks that end an archive.
std::string tar_end();

}  // namespace shoal
