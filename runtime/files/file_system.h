#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shoal {

/// The interface through which all files are written, one method for each system call. Tests
/// substitute one that fails, writes short or kills the process at the n-th call.
///
/// Every method returns what the system call returns, or -errno. Safe to call from any thread.
class FileSystem {
 public:
  enum class Mode {
    kCreate,   ///< fails with EEXIST if the path exists
    kReplace,  ///< truncates an existing file
    kAppend,   ///< writes after the existing content
    kPatch,    ///< overwrites the beginning of an existing file
  };
  virtual ~FileSystem() = default;
  /// Returns a descriptor for writing; links are not followed.
  virtual int open(const std::string& path, Mode mode) = 0;
  /// Returns a descriptor that only sync and close accept.
  virtual int open_directory(const std::string& path) = 0;
  /// Returns the number of bytes written, which may be less than `count`.
  virtual int64_t write(int file, const void* bytes, size_t count) = 0;
  virtual int sync(int file) = 0;
  virtual int close(int file) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int make_directory(const std::string& path) = 0;
  virtual int remove_file(const std::string& path) = 0;
  virtual int remove_directory(const std::string& path) = 0;
  /// Bytes that an ordinary user may still write to the file system of `path`.
  virtual int64_t free_bytes(const std::string& path) = 0;
};

/// Makes the real system calls.
class PosixFileSystem final : public FileSystem {
 public:
  int open(const std::string& path, Mode mode) override;
  int open_directory(const std::string& path) override;
  int64_t write(int file, const void* bytes, size_t count) override;
  int sync(int file) override;
  int close(int file) override;
  int rename(const std::string& from, const std::string& to) override;
  int make_directory(const std::string& path) override;
  int remove_file(const std::string& path) override;
  int remove_directory(const std::string& path) override;
  int64_t free_bytes(const std::string& path) override;
};

/// A file being written. Interrupted calls are repeated and short writes continued. Throws
/// StorageError with the path, the system's text, and for writes the bytes needed and free.
class OutputFile {
 public:
  OutputFile(FileSystem& files, std::string path, FileSystem::Mode mode);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Closes the file and ignores errors: call close() before.
  ~OutputFile();
  void write(std::string_view bytes);
  /// Returns once the bytes are on the disk.
  void sync();
  void close();
  const std::string& path() const { return path_; }

 private:
  FileSystem& files_;
  std::string path_;
  int file_ = -1;
};

// Calls on paths; all throw StorageError.
void rename_path(FileSystem& files, const std::string& from, const std::string& to);
void make_directory(FileSystem& files, const std::string& path);
/// Removes a file; a missing one is not an error.
void remove_path(FileSystem& files, const std::string& path);
/// Makes the directory's entries (files created, renamed, removed) durable.
void sync_directory(FileSystem& files, const std::string& path);
/// Replaces the content of `path` atomically, also against other writers: writes a temporary file
/// beside it, syncs, renames, syncs the directory. A crash leaves the old file or the new one; a
/// failure leaves no temporary file.
void replace_file(FileSystem& files, const std::string& path, std::string_view bytes);
/// Throws unless at least `needed` bytes are free on the disk of `path`; `what` begins the message.
void require_free_bytes(FileSystem& files, const std::string& path, int64_t needed,
                        const std::string& what);

/// Returns the target of the symbolic link `path`, as written in it; nothing if it is not a link.
std::optional<std::string> link_target(const std::string& path);

/// The folder that holds `path`; "." for a bare name.
std::string parent_path(const std::string& path);

}  // namespace shoal
