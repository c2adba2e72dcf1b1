#include "runtime/files/new_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/files/untrusted_file.h"

namespace shoal {
namespace {

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// Makes the folders around a new one; what is made in them tells if it cannot.
void make_parents(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::create_directories(parent_path(without_slash(folder)), ignored);
}

[[noreturn]] void refuse_existing(const std::string& path) {
  throw StorageError(fmt::format("'{}' is there already", path),
                     "name a folder that does not exist, or remove it");
}

}  // namespace

NewFolder::NewFolder(std::string path)
    : path_(without_slash(std::move(path))), working_(path_ + ".partial-XXXXXX") {
  if (name_exists(path_)) refuse_existing(path_);
  make_parents(path_);
  if (mkdtemp(working_.data()) == nullptr) {
    throw StorageError(fmt::format("'{}': {}", working_, std::strerror(errno)));
  }
  // mkdtemp lets nobody else in, a folder made the usual way does.
  const mode_t mask = umask(0);
  umask(mask);
  chmod(working_.c_str(), 0777 & ~mask);  // where it is refused, the folder stays private
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!is_committed_) std::filesystem::remove_all(working_, ignored);
}

void NewFolder::commit() {
  PosixFileSystem files;
  sync_directory(files, working_);
  if (renameat2(AT_FDCWD, working_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) refuse_existing(path_);
    // File systems without the flag, such as NFS: there a rename replaces an empty folder alone.
    if (errno != EINVAL && errno != ENOSYS) {
      throw StorageError(fmt::format("'{}': {}", path_, std::strerror(errno)));
    }
    rename_path(files, working_, path_);
  }
  is_committed_ = true;
  sync_directory(files, parent_path(path_));
}

void require_free_folder(const std::string& option, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool is_free =
      fs::is_directory(folder, error) ? fs::is_empty(folder, error) : !fs::exists(folder, error);
  if (error || !is_free) {
    throw Error(ExitCode::kUsage, fmt::format("{} '{}': is not an empty folder", option, folder),
                "name a folder that does not exist yet");
  }
  fs::path parent = fs::absolute(without_slash(folder)).parent_path();
  while (!fs::exists(parent, error)) parent = parent.parent_path();
  if (fs::is_directory(parent, error)) return;
  throw Error(ExitCode::kUsage,
              fmt::format("{} '{}': '{}' is not a folder", option, folder, parent.string()),
              "name another folder");
}

void fill_folder(FileSystem& files, const std::string& folder, const std::function<void()>& write) {
  namespace fs = std::filesystem;
  const bool is_new = !fs::exists(folder);
  make_parents(folder);
  if (is_new) make_directory(files, folder);
  try {
    write();
  } catch (...) {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      fs::remove_all(entry.path(), ignored);
    }
    if (is_new) fs::remove(folder, ignored);
    throw;
  }
}

}  // namespace shoal
