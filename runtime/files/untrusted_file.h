#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

enum class PathKind { kNothing, kFolder, kOther };

// A file that is missing, too short or of another kind is a CheckpointError. A failed read (EIO,
// ESTALE, EMFILE …) tells nothing about the file: it is repeated after pauses, then a StorageError.

/// What is at `path`, links followed. A folder out of reach is never taken for one that is not
/// there. Throws CheckpointError, StorageError.
PathKind kind_of(const std::string& path);
/// Whether something has this name, be it a link to a file that does not exist.
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
  /// When it was opened.
  uint64_t size() const { return size_; }
  /// Fills `out` with the `count` bytes from `offset` on.
  void read(uint64_t offset, char* out, uint64_t count) const;
  /// The same as a string; refuses, before it allocates, what is past the end.
  std::string read(uint64_t offset, uint64_t count) const;
  /// Hands the bytes [begin, end) to `sink` in order, piece by piece.
  void stream(uint64_t begin, uint64_t end,
              const std::function<void(std::string_view)>& sink) const;
  /// Asks the system to drop its copy in memory of what is on the disk or the file server, so that
  /// the next read comes from there. A file system in memory has no other copy.
  void drop_cache() const;

 private:
  friend class UntrustedFolder;
  UntrustedFile(int file, std::string path, uint64_t size)
      : file_(file), path_(std::move(path)), size_(size) {}
  int file_;
  std::string path_;
  uint64_t size_;
};

/// A folder whose files may be hostile: names are plain, links are not followed, and what is not a
/// regular file is refused. Throws CheckpointError, StorageError.
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
