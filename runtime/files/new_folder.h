#pragma once

#include <functional>
#include <string>

#include "runtime/files/file_system.h"

namespace shoal {

/// Creates a folder atomically, so that a failed command leaves no half-filled one: files go to
/// PATH.partial-XXXXXX, which commit() renames. A signal that ends the program leaves that folder.
class NewFolder {
 public:
  /// Makes the partial folder, with its parents. Throws StorageError if `path` exists.
  explicit NewFolder(std::string path);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  /// Removes the partial folder unless it was committed.
  ~NewFolder();
  /// Folder to write to until commit().
  const std::string& working_path() const { return working_; }
  /// Renames the folder to `path`. Throws StorageError if `path` exists by now.
  void commit();

 private:
  std::string path_, working_;
  bool is_committed_ = false;
};

/// Throws Error (exit 2) unless a command may write to `folder`: an empty or a missing one.
/// `option`: the command-line option that gave `folder`, for the message.
void require_free_folder(const std::string& option, const std::string& folder);

/// Calls `write` to fill a folder that is empty or created here, with its parents. If `write`
/// throws, removes the folder's content, and the folder if it was created. Throws StorageError if
/// it cannot be created.
void fill_folder(FileSystem& files, const std::string& folder, const std::function<void()>& write);

}  // namespace shoal
