#include "runtime/base/untrusted_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file_system.h"

namespace shoal {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

std::string system_text(int error) { return std::generic_category().message(error); }

}  // namespace

PathKind kind_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    return S_ISDIR(info.st_mode) ? PathKind::kFolder : PathKind::kOther;
  }
  if (errno == ENOENT || errno == ENOTDIR) return PathKind::kNothing;
  throw CheckpointError(fmt::format("'{}': {}", path, system_text(errno)));
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
    const ssize_t got = ::pread(file_, out + done, std::min(count - done, kPieceBytes * 64),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw CheckpointError(fmt::format("'{}': bytes {}..{} cannot be read: {}", path_,
                                        offset + done, offset + count,
                                        got == 0 ? "the file ends before" : system_text(errno)));
    }
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

UntrustedFolder::UntrustedFolder(std::string path) : path_(std::move(path)) {
  folder_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ >= 0) return;
  const int error = errno;
  const std::optional<std::string> target = link_target(path_);
  if (error == ENOENT && target) {
    throw CheckpointError(fmt::format("'{}' is a link to '{}' and leads nowhere", path_, *target),
                          "put the checkpoint back there, or mend the link");
  }
  throw CheckpointError(fmt::format("folder '{}': {}", path_, system_text(error)));
}

UntrustedFolder::UntrustedFolder(UntrustedFolder&& other) noexcept
    : path_(std::move(other.path_)), folder_(std::exchange(other.folder_, -1)) {}

UntrustedFolder::~UntrustedFolder() {
  if (folder_ >= 0) ::close(folder_);
}

std::vector<std::string> UntrustedFolder::names() const {
  const int copy = ::openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(copy < 0 ? nullptr : ::fdopendir(copy),
                                                    ::closedir);
  if (listing == nullptr) {
    throw CheckpointError(fmt::format("folder '{}': {}", path_, system_text(errno)));
  }
  std::vector<std::string> found;
  for (errno = 0; const dirent* entry = ::readdir(listing.get()); errno = 0) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") found.push_back(name);
  }
  if (errno != 0) {
    throw CheckpointError(fmt::format("folder '{}': {}", path_, system_text(errno)));
  }
  std::sort(found.begin(), found.end());
  return found;
}

UntrustedFile UntrustedFolder::open(const std::string& name) const {
  const std::string path = path_ + "/" + name;
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    throw CheckpointError(fmt::format("'{}' is not a plain file name", name));
  }
  // Without O_NONBLOCK a named pipe would hold the program up for ever.
  const int file = ::openat(folder_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0 && errno == ELOOP) {
    throw CheckpointError(fmt::format("'{}' is a link to '{}'; links are not followed", path,
                                      link_target(path).value_or("?")),
                          "put a copy of that file in its place");
  }
  if (file < 0) throw CheckpointError(fmt::format("'{}': {}", path, system_text(errno)));
  struct stat info {};
  const int stat_result = ::fstat(file, &info);
  UntrustedFile opened(file, path, static_cast<uint64_t>(info.st_size));
  if (stat_result != 0 || !S_ISREG(info.st_mode)) {
    throw CheckpointError(fmt::format("'{}' is not a regular file", path));
  }
  return opened;
}

}  // namespace shoal
