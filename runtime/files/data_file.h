#pragma once

#include <cstddef>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

namespace shoal {

/// Opens a regular file for reading, following links; returns its descriptor. `hint`: advice in the
/// error if it is missing or not a regular file. Throws DataError; for a missing file it names the
/// first missing part of the path and the files beside it, or the broken link.
int open_data_file(const std::string& path, const std::string& hint);

/// True if `path` is a named pipe, which blocks whoever opens it until somebody writes. False for
/// pipes that the program inherited open: /dev/stdin, /dev/fd/N, /proc/self/fd/N, a shell's <(...).
bool is_named_pipe(const std::string& path);
/// Opens a file for reading. Returns a stream in failed state if that fails or `path` is a pipe.
std::ifstream open_unless_pipe(const std::string& path);

/// Returns the bytes of a file up to the first that cannot be read; "" if it cannot be opened.
std::string text_of_file(const std::string& path);

/// True if something exists at `path`, links followed. Throws DataError if the system cannot tell.
bool data_file_exists(const std::string& path);

/// A file mapped into memory for reading, so that ranks of one machine share it in the page cache.
/// If another process truncates it, SIGBUS ends the program; replacing it by rename is harmless.
class MappedFile {
 public:
  /// Throws DataError as open_data_file does, and if mapping fails. An empty file has no bytes.
  MappedFile(const std::string& path, const std::string& hint);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  /// The content of the file, starting at a page boundary.
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace shoal
