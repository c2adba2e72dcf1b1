#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/files/file_system.h"

namespace shoal {

using SharedFileSystem = std::shared_ptr<FileSystem>;

/// A log or metrics file to which each record is written immediately, unbuffered. Records that the
/// system refuses, as on a full disk, wait in memory, and the next call writes them first. If more
/// than `most_waiting_bytes` would wait, a new record is dropped; errors give the number dropped.
class GrowingFile {
 public:
  /// Creates the file or appends to it. `noun` names a record in messages. Throws StorageError.
  GrowingFile(std::string path, std::string noun, SharedFileSystem files,
              size_t most_waiting_bytes = std::numeric_limits<size_t>::max());
  GrowingFile(GrowingFile&& other) noexcept;
  GrowingFile& operator=(GrowingFile&&) = delete;
  /// Tries once more to write waiting records. Records that fail again are lost.
  ~GrowingFile();
  /// Tries once more to write waiting records. Throws StorageError with the number lost or dropped.
  void finish();
  const std::string& path() const { return path_; }

 protected:
  /// Writes a record. Throws StorageError if this record or an earlier one still waits in memory.
  void append(std::string_view record);

 private:
  SharedFileSystem files_;
  std::string path_, noun_;
  int file_ = -1;
  std::deque<std::string> waiting_;
  size_t most_waiting_bytes_, waiting_bytes_ = 0;
  int64_t num_dropped_ = 0;  ///< dropped records since the file was opened

  void write_waiting();
};

}  // namespace shoal
