#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// A regular file in a tar archive.
struct TarMember {
  std::string name;    ///< as the archive has it
  int64_t offset = 0;  ///< of its bytes in the archive
  int64_t size = 0;    ///< bytes
  bool operator==(const TarMember&) const = default;
};

/// Headers take one block, and the bytes of a member begin and end at borders of blocks.
inline constexpr int64_t kTarBlockBytes = 512;

/// The regular files of a tar archive in its order, in the formats ustar, pax and GNU with their
/// long names and sizes. Folders and global pax headers are passed over. Nothing is extracted.
///
/// Archives may be hostile. Refused are names that are absolute, have a component "..", or are
/// longer than 4 KiB; links, devices, FIFOs, sparse files and other kinds of members; wrong
/// checksums and numbers; a member that reaches past the end, an archive that is cut short, one
/// with bytes behind its end, and one without files. What is allocated is in proportion to the
/// archive's own bytes. `path`: for messages. Throws: DataError with the byte and the member.
std::vector<TarMember> list_tar(std::span<const std::byte> archive, const std::string& path);

/// A member's name for messages: its beginning, bytes that are no letters as '?'.
std::string shown_name(std::string_view name);

}  // namespace shoal
