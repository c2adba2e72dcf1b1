#include "runtime/files/untrusted_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/files/file_system.h"

namespace shoal {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr int kOpenFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr std::array kPauses{std::chrono::milliseconds(50), std::chrono::milliseconds(250),
                             std::chrono::milliseconds(1000)};

std::string system_text(int error) { return std::generic_category().message(error); }

bool tells_what_is_there(int error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG;
}

[[noreturn]] void refuse(const std::string& what, int error) {
  const std::string text = fmt::format("{}: {}", what, system_text(error));
  if (tells_what_is_there(error)) throw CheckpointError(text);
  throw StorageError(text,
                     "try again; if it stays so, `--override` of a resume, eval, inspect and ckpt "
                     "passes over a run's checkpoint that cannot be read, and keeps it");
}

/// The call's result, after pauses and further tries where a failure may pass.
template <typename Call>
auto patiently(const Call& call) {
  for (const auto pause : kPauses) {
    const auto result = call();
    const bool may_pass = !tells_what_is_there(errno) && errno != EACCES && errno != EPERM;
    if (result >= 0 || !may_pass) return result;
    std::this_thread::sleep_for(pause);
  }
  return call();
}

}  // namespace

PathKind kind_of(const std::string& path) {
  struct stat info {};
  if (patiently([&] { return ::stat(path.c_str(), &info); }) == 0) {
    return S_ISDIR(info.st_mode) ? PathKind::kFolder : PathKind::kOther;
  }
  if (errno == ENOENT || errno == ENOTDIR) return PathKind::kNothing;
  refuse(fmt::format("'{}'", path), errno);
}

bool name_exists(const std::string& path) {
  return kind_of(path) != PathKind::kNothing || link_target(path);
}

UntrustedFile::UntrustedFile(UntrustedFile&& other) noexcept
    : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)), size_(other.size_) {}

UntrustedFile::~UntrustedFile() {
  if (file_ >= 0) ::close(file_);
}

void UntrustedFile::read(uint64_t offset, char* out, uint64_t count) const {
  uint64_t done = 0;
  while (done < count) {
    const ssize_t got = patiently([&] {
      return ::pread(file_, out + done, std::min(count - done, kPieceBytes * 64),
                     static_cast<off_t>(offset + done));
    });
    if (got < 0 && errno == EINTR) continue;
    const auto what = [&] {
      return fmt::format("'{}': bytes {}..{} cannot be read", path_, offset + done, offset + count);
    };
    if (got < 0) refuse(what(), errno);
    if (got == 0) throw CheckpointError(what() + ": the file ends before");
    done += static_cast<uint64_t>(got);
  }
}

std::string UntrustedFile::read(uint64_t offset, uint64_t count) const {
  if (offset > size_ || count > size_ - offset) {
    throw CheckpointError(fmt::format("'{}': bytes {}..{} are past the end of the file at {}",
                                      path_, offset, offset + count, size_));
  }
  std::string bytes(count, '\0');
  read(offset, bytes.data(), count);
  return bytes;
}

void UntrustedFile::stream(uint64_t begin, uint64_t end,
                           const std::function<void(std::string_view)>& sink) const {
  std::string piece(std::min(end - begin, kPieceBytes), '\0');
  while (begin < end) {
    const uint64_t count = std::min<uint64_t>(end - begin, piece.size());
    read(begin, piece.data(), count);
    sink(std::string_view(piece.data(), count));
    begin += count;
  }
}

void UntrustedFile::drop_cache() const { ::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED); }

UntrustedFolder::UntrustedFolder(std::string path) : path_(std::move(path)) {
  folder_ = patiently([&] { return ::open(path_.c_str(), kOpenFolder); });
  if (folder_ >= 0) return;
  const int error = errno;
  const std::optional<std::string> target = link_target(path_);
  if (error == ENOENT && target) {
    throw CheckpointError(fmt::format("'{}' is a link to '{}' and leads nowhere", path_, *target),
                          "put the checkpoint back there, or mend the link");
  }
  refuse(fmt::format("folder '{}'", path_), error);
}

UntrustedFolder::UntrustedFolder(UntrustedFolder&& other) noexcept
    : path_(std::move(other.path_)), folder_(std::exchange(other.folder_, -1)) {}

UntrustedFolder::~UntrustedFolder() {
  if (folder_ >= 0) ::close(folder_);
}

std::vector<std::string> UntrustedFolder::names() const {
  std::vector<std::string> found;
  const int failed = patiently([&] {
    found.clear();
    const int copy = ::openat(folder_, ".", kOpenFolder);
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(copy < 0 ? nullptr : ::fdopendir(copy),
                                                      ::closedir);
    if (listing == nullptr) return -1;
    for (errno = 0; const dirent* entry = ::readdir(listing.get()); errno = 0) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") found.push_back(name);
    }
    return errno == 0 ? 0 : -1;
  });
  if (failed < 0) refuse(fmt::format("folder '{}'", path_), errno);
  std::ranges::sort(found);
  return found;
}

UntrustedFile UntrustedFolder::open(const std::string& name) const {
  const std::string path = path_ + "/" + name;
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    throw CheckpointError(fmt::format("'{}' is not a plain file name", name));
  }
  // Without O_NONBLOCK a named pipe would hold the program up for ever.
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int file = patiently([&] { return ::openat(folder_, name.c_str(), kFlags); });
  if (file < 0 && errno == ELOOP) {
    throw CheckpointError(fmt::format("'{}' is a link to '{}'; links are not followed", path,
                                      link_target(path).value_or("?")),
                          "put a copy of that file in its place");
  }
  if (file < 0) refuse(fmt::format("'{}'", path), errno);
  UntrustedFile opened(file, path, 0);
  struct stat info {};
  if (::fstat(file, &info) != 0) refuse(fmt::format("'{}'", path), errno);
  if (!S_ISREG(info.st_mode)) {
    throw CheckpointError(fmt::format("'{}' is not a regular file", path));
  }
  opened.size_ = static_cast<uint64_t>(info.st_size);
  return opened;
}

}  // namespace shoal
