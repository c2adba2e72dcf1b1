#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

enum class PathKind { kNothing, kFolder, kOther };

// Reading of checkpoints and of weights of other programs, which may be damaged or forged. A file
// that is missing, too short or of another kind is a CheckpointError. A failed read (EIO, ESTALE,
// EMFILE …) does not mean that the file is bad: it is retried after pauses, then a StorageError.

/// Returns what lies at `path`, links followed. Throws CheckpointError or StorageError if the
/// system cannot tell: an unreachable folder is not reported as missing.
PathKind kind_of(const std::string& path);
/// True if an entry of this name exists, even a broken link.
bool name_exists(const std::string& path);

/// A regular file opened for reading inside an UntrustedFolder. Throws CheckpointError,
/// StorageError with the path and the byte range.
class UntrustedFile {
 public:
  UntrustedFile(UntrustedFile&& other) noexcept;
  UntrustedFile(const UntrustedFile&) = delete;
  UntrustedFile& operator=(const UntrustedFile&) = delete;
  ~UntrustedFile();
  const std::string& path() const { return path_; }
  /// Size in bytes when it was opened.
  uint64_t size() const { return size_; }
  /// Fills `out` with the `count` bytes from `offset` on.
  void read(uint64_t offset, char* out, uint64_t count) const;
  /// Returns these bytes as a string; checks the range before it allocates.
  std::string read(uint64_t offset, uint64_t count) const;
  /// Passes the bytes [begin, end) to `sink` in order, piece by piece.
  void stream(uint64_t begin, uint64_t end,
              const std::function<void(std::string_view)>& sink) const;
  /// Asks the system to drop the file from the page cache, so that the next read comes from the
  /// disk or the file server. Without effect on file systems in memory.
  void drop_cache() const;

 private:
  friend class UntrustedFolder;
  UntrustedFile(int file, std::string path, uint64_t size)
      : file_(file), path_(std::move(path)), size_(size) {}
  int file_;
  std::string path_;
  uint64_t size_;
};

/// A folder whose files are not trusted: names must have no folder part, links are not followed,
/// and only regular files are accepted. Throws CheckpointError, StorageError.
class UntrustedFolder {
 public:
  explicit UntrustedFolder(std::string path);
  UntrustedFolder(UntrustedFolder&& other) noexcept;
  UntrustedFolder(const UntrustedFolder&) = delete;
  UntrustedFolder& operator=(const UntrustedFolder&) = delete;
  ~UntrustedFolder();
  const std::string& path() const { return path_; }
  /// Names of all entries, sorted, without "." and "..".
  std::vector<std::string> names() const;
  UntrustedFile open(const std::string& name) const;

 private:
  std::string path_;
  int folder_;
};

}  // namespace shoal
