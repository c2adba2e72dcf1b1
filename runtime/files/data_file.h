#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>

namespace shoal {

/// Opens a regular file for reading, following links; returns its descriptor. `hint`: what to do if
/// it is missing or not a file. Throws: DataError; for a missing file it names the first missing
/// part of the path and the files beside it, or the broken link.
int open_data_file(const std::string& path, const std::string& hint);

/// True if opening `path` would block until somebody writes. Excludes pipes that the program
/// inherited open, as /dev/stdin, /dev/fd/N or /proc/self/fd/N in a shell's <(...).
bool is_named_pipe(const std::string& path);
/// Opens a file for reading; a failed stream if that fails or `path` is a named pipe.
std::ifstream open_unless_pipe(const std::string& path);

/// What can be read of a file; "" of none.
std::string text_of_file(const std::string& path);

/// Whether something lies at `path`, links followed. Throws DataError where the system cannot tell.
bool data_file_exists(const std::string& path);

/// A file mapped for reading, so that ranks of one machine share it in the page cache. If another
/// process truncates it, SIGBUS ends the program; replacing it by rename is harmless.
class MappedFile {
 public:
  /// Throws: DataError, as open_data_file. An empty file is mapped as no bytes.
  MappedFile(const std::string& path, const std::string& hint);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  /// Starts at a page boundary.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace shoal
