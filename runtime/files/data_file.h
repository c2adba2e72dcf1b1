#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>

namespace shoal {

/// A descriptor of a regular file for reading; links are followed. `hint`: the next step where it
/// is missing or no file. Throws: DataError; of a missing file it names the first part of the path
/// that is not there and what lies beside it, or the link that leads nowhere.
int open_data_file(const std::string& path, const std::string& hint);

/// Whether opening `path` would wait until somebody writes. A pipe that the program was handed
/// open, /dev/stdin, /dev/fd/N or /proc/self/fd/N as a shell's <(...) is, has a writer.
bool is_named_pipe(const std::string& path);
/// A failed stream where nothing can be read, of a named pipe too.
std::ifstream open_unless_pipe(const std::string& path);

/// What can be read of a file; "" of none.
std::string text_of_file(const std::string& path);

/// Whether something lies at `path`, links followed. Throws DataError where the system cannot tell.
bool data_file_exists(const std::string& path);

/// A file mapped for reading, so that ranks of one machine share it in the page cache. Whoever
/// makes it shorter meanwhile ends the program by SIGBUS; replacing it by rename is harmless.
class MappedFile {
 public:
  /// Throws: DataError, as open_data_file. An empty file is mapped as no bytes.
  MappedFile(const std::string& path, const std::string& hint);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  /// Begins at the border of a page.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace shoal
