#include "runtime/files/file_system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {
namespace {

constexpr int kFilePermissions = 0644;
constexpr int kFolderPermissions = 0755;
constexpr size_t kLargestWrite = size_t{64} << 20;

template <typename Result>
Result or_errno(Result result) {
  return result < 0 ? static_cast<Result>(-errno) : result;
}

template <typename Call>
auto repeat_interrupted(Call call) {
  auto result = call();
  while (result == -EINTR) result = call();
  return result;
}

std::string error_text(int64_t negative_errno) {
  return std::generic_category().message(static_cast<int>(-negative_errno));
}

/// A name that no other process, machine or thread uses.
std::string temporary_beside(const std::string& path) {
  static std::atomic<int64_t> num_made = 0;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"unknown"};
  return fmt::format("{}.{}-{}-{}.tmp", path, host.data(), ::getpid(), num_made++);
}

void check(const char* call, const std::string& path, int64_t result) {
  if (result >= 0) return;
  throw StorageError(fmt::format("{} '{}': {}", call, path, error_text(result)));
}

}  // namespace

int PosixFileSystem::open(const std::string& path, Mode mode) {
  const int by_mode = mode == Mode::kCreate    ? O_CREAT | O_EXCL
                      : mode == Mode::kReplace ? O_CREAT | O_TRUNC
                      : mode == Mode::kAppend  ? O_CREAT | O_APPEND
                                               : 0;
  // Without O_NONBLOCK, opening a pipe would wait for a reader.
  return or_errno(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | by_mode,
                         kFilePermissions));
}

int PosixFileSystem::open_directory(const std::string& path) {
  return or_errno(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

int64_t PosixFileSystem::write(int file, const void* bytes, size_t count) {
  return or_errno(static_cast<int64_t>(::write(file, bytes, count)));
}

int PosixFileSystem::sync(int file) { return or_errno(::fsync(file)); }

int PosixFileSystem::close(int file) { return or_errno(::close(file)); }

int PosixFileSystem::rename(const std::string& from, const std::string& to) {
  return or_errno(std::rename(from.c_str(), to.c_str()));
}

int PosixFileSystem::make_directory(const std::string& path) {
  return or_errno(::mkdir(path.c_str(), kFolderPermissions));
}

int PosixFileSystem::remove_file(const std::string& path) {
  return or_errno(::unlink(path.c_str()));
}

int PosixFileSystem::remove_directory(const std::string& path) {
  return or_errno(::rmdir(path.c_str()));
}

int64_t PosixFileSystem::free_bytes(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return -errno;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

OutputFile::OutputFile(FileSystem& files, std::string path, FileSystem::Mode mode)
    : files_(files), path_(std::move(path)) {
  file_ = repeat_interrupted([&] { return files_.open(path_, mode); });
  check("open", path_, file_);
}

OutputFile::~OutputFile() {
  if (file_ >= 0) files_.close(file_);
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), kLargestWrite);
    const int64_t written =
        repeat_interrupted([&] { return files_.write(file_, bytes.data(), count); });
    // A file system that takes nothing and reports nothing would loop here for ever.
    const int64_t error = written == 0 ? -EIO : written;
    if (error < 0) {
      const int64_t free = files_.free_bytes(parent_path(path_));
      throw StorageError(
          fmt::format("write '{}': {} ({} bytes needed, {} free)", path_, error_text(error),
                      bytes.size(), free < 0 ? "unknown" : std::to_string(free)),
          "free some space on this disk, or choose another with run.root=…");
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void OutputFile::sync() {
  check("sync", path_, repeat_interrupted([&] { return files_.sync(file_); }));
}

void OutputFile::close() {
  const int result = files_.close(std::exchange(file_, -1));
  // Linux has closed the descriptor even when it reports an interruption.
  if (result != -EINTR) check("close", path_, result);
}

void rename_path(FileSystem& files, const std::string& from, const std::string& to) {
  const int result = repeat_interrupted([&] { return files.rename(from, to); });
  if (result < 0) {
    throw StorageError(fmt::format("rename '{}' to '{}': {}", from, to, error_text(result)));
  }
}

void remove_path(FileSystem& files, const std::string& path) {
  const int result = files.remove_file(path);
  if (result != -ENOENT) check("remove", path, result);
}

void make_directory(FileSystem& files, const std::string& path) {
  check("mkdir", path, repeat_interrupted([&] { return files.make_directory(path); }));
}

void sync_directory(FileSystem& files, const std::string& path) {
  const int folder = repeat_interrupted([&] { return files.open_directory(path); });
  check("open", path, folder);
  const int result = repeat_interrupted([&] { return files.sync(folder); });
  files.close(folder);
  check("sync", path, result);
}

void replace_file(FileSystem& files, const std::string& path, std::string_view bytes) {
  const std::string temporary = temporary_beside(path);
  try {
    OutputFile file(files, temporary, FileSystem::Mode::kReplace);
    file.write(bytes);
    file.sync();
    file.close();
    rename_path(files, temporary, path);
  } catch (const StorageError&) {
    files.remove_file(temporary);  // what a full disk cut off is of use to nobody
    throw;
  }
  sync_directory(files, parent_path(path));
}

void require_free_bytes(FileSystem& files, const std::string& path, int64_t needed,
                        const std::string& what) {
  const int64_t free = files.free_bytes(path);
  check("statvfs", path, free);
  if (free >= needed) return;
  throw StorageError(fmt::format("{}: '{}' has too little space ({} bytes needed, {} free)", what,
                                 path, needed, free),
                     "free some space on this disk, or choose another with run.root=…");
}

std::optional<std::string> link_target(const std::string& path) {
  std::error_code no_link;
  const std::filesystem::path target = std::filesystem::read_symlink(path, no_link);
  if (no_link) return std::nullopt;
  return target.string();
}

std::string parent_path(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace shoal
