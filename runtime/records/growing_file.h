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

/// A file that grows by whole records, each handed to the system at once. Records that the system
/// refuses, as a full disk does, wait in memory and go first at the next call; those that would
/// take more than `most_waiting_bytes` are dropped, which the errors and finish() tell.
class GrowingFile {
 public:
  /// Appends to what is there. `noun` names a record in messages. Throws StorageError if the file
  /// cannot be opened.
  GrowingFile(std::string path, std::string noun, SharedFileSystem files,
              size_t most_waiting_bytes = std::numeric_limits<size_t>::max());
  GrowingFile(GrowingFile&& other) noexcept;
  GrowingFile& operator=(GrowingFile&&) = delete;
  /// Tries once more; what is refused then is lost.
  ~GrowingFile();
  /// Tries once more, for the last time. Throws StorageError with the number of records that are
  /// lost, those included that were dropped.
  void finish();
  const std::string& path() const { return path_; }

 protected:
  /// Throws StorageError while records wait.
  void append(std::string_view record);

 private:
  SharedFileSystem files_;
  std::string path_, noun_;
  int file_ = -1;
  std::deque<std::string> waiting_;
  size_t most_waiting_bytes_, waiting_bytes_ = 0;
  int64_t num_dropped_ = 0;  ///< records, since the file was opened

  void write_waiting();
};

}  // namespace shoal
