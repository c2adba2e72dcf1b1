#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace spdlog {
class logger;
}

namespace shoal {

/// The log of one rank. Every rank has a file of its own; rank 0 also shows lines to the user.
///
/// Lines in the file have local time, rank and level; the first names host, process, time zone.
class Log {
 public:
  using Echo = std::function<void(const std::string& line)>;
  /// Appends to the file at `path` and flushes each line; an empty path means no file. `echo` shows
  /// a line on the console. If the disk is full, lines are lost and `echo` reports this once, on
  /// any rank. Throws StorageError if the file cannot be opened.
  Log(const std::string& path, int64_t rank, Echo echo);

  /// Writes to the file and, on rank 0, to the console; so do warn() and error().
  void info(const std::string& text);
  /// Writes to the file only.
  void detail(const std::string& text);
  void warn(const std::string& text);
  void error(const std::string& text);

 private:
  void show(const std::string& text);

  std::shared_ptr<spdlog::logger> file_;
  int64_t rank_;
  Echo echo_;
};

}  // namespace shoal
