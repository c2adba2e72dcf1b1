#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shoal {

/// The one interface through which files are written, one method a system call. Tests substitute
/// one that fails, writes short or kills the process at the n-th call.
///
/// Every method returns what the system call returns, or -errno. Safe to call from any thread.
class FileSystem {
 public:
  enum class Mode {
    kCreate,   ///< fails with EEXIST if the path exists
    kReplace,  ///< empties a file that exists
    kAppend,   ///< writes after what is there
    kPatch,    ///< writes over the beginning of a file that exists
  };
  virtual ~FileSystem() = default;
  /// A descriptor for writing; links are not followed.
  virtual int open(const std::string& path, Mode mode) = 0;
  /// A descriptor that only sync and close accept.
  virtual int open_directory(const std::string& path) = 0;
  /// May write less than `count`.
  virtual int64_t write(int file, const void* bytes, size_t count) = 0;
  virtual int sync(int file) = 0;
  virtual int close(int file) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int make_directory(const std::string& path) = 0;
  virtual int remove_file(const std::string& path) = 0;
  virtual int remove_directory(const std::string& path) = 0;
  /// Bytes an ordinary user may still write below `path`.
  virtual int64_t free_bytes(const std::string& path) = 0;
};

/// The system calls themselves.
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

/// A file being written. Interrupted calls are repeated and short writes continued.
/// Throws StorageError with the path, the system's text, and for writes the bytes needed and free.
class OutputFile {
 public:
  OutputFile(FileSystem& files, std::string path, FileSystem::Mode mode);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Closes; an error is ignored, so call close() on the good path.
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

// The calls on paths. All throw StorageError.
void rename_path(FileSystem& files, const std::string& from, const std::string& to);
void make_directory(FileSystem& files, const std::string& path);
/// A file that is not there is no error.
void remove_path(FileSystem& files, const std::string& path);
/// Makes the directory's entries (files created, renamed, removed) durable.
void sync_directory(FileSystem& files, const std::string& path);
/// Puts `bytes` at `path` so that a crash leaves the old file or the new one, whoever else does so:
/// `PATH.….tmp` beside it, sync, rename, sync of the directory. A failure leaves no temporary file.
void replace_file(FileSystem& files, const std::string& path, std::string_view bytes);
/// Throws unless at least `needed` bytes are free below `path`; `what` begins the message.
void require_free_bytes(FileSystem& files, const std::string& path, int64_t needed,
                        const std::string& what);

/// Where the link at `path` leads, as it is written there; nothing if `path` is no link.
std::optional<std::string> link_target(const std::string& path);

/// The folder that holds `path`; "." for a bare name.
std::string parent_path(const std::string& path);

}  // namespace shoal
