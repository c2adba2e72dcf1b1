#include "launch/commands/new_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file_system.h"
#include "runtime/base/untrusted_file.h"

namespace shoal {
namespace {

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

NewFolder::NewFolder(std::string path)
    : path_(without_slash(std::move(path))),
      working_(fmt::format("{}.partial-{}", path_, getpid())) {
  if (kind_of(path_) != PathKind::kNothing || link_target(path_)) {
    throw StorageError(fmt::format("'{}' is there already", path_),
                       "name a folder that is not there yet, or remove it");
  }
  PosixFileSystem files;
  make_directory(files, working_);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!is_committed_) std::filesystem::remove_all(working_, ignored);
}

void NewFolder::commit() {
  PosixFileSystem files;
  sync_directory(files, working_);
  rename_path(files, working_, path_);
  is_committed_ = true;
  sync_directory(files, parent_path(path_));
}

}  // namespace shoal
