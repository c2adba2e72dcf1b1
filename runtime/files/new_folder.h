#pragma once

#include <functional>
#include <string>

#include "runtime/files/file_system.h"

namespace shoal {

/// A folder that appears whole under its name or not at all: it is filled beside it, as
/// PATH.partial-XXXXXX, and renamed. A signal that ends the program leaves the partial folder.
class NewFolder {
 public:
  /// Makes it. Throws StorageError if there is something at `path`.
  explicit NewFolder(std::string path);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  /// Removes what was not committed.
  ~NewFolder();
  /// Where to write until commit().
  const std::string& working_path() const { return working_; }
  /// Throws StorageError if something came to be at `path` meanwhile.
  void commit();

 private:
  std::string path_, working_;
  bool is_committed_ = false;
};

/// Throws Error (exit 2) that names the command's option unless `folder` is an empty folder, or
/// does not exist and its parent folder does.
void require_free_folder(const std::string& option, const std::string& folder);

/// Calls `write`, which fills a folder that is empty or made here; where it throws, what is in the
/// folder is removed, and the folder if it was made. Throws StorageError.
void fill_folder(FileSystem& files, const std::string& folder, const std::function<void()>& write);

}  // namespace shoal
