#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace spdlog {
class logger;
}

namespace shoal {

/// A rank's log: every line goes to its own file, and on rank 0 also to `echo`, the console.
///
/// A line holds local time, rank and level; the first line states host, process and time zone.
class Log {
 public:
  using Echo = std::function<void(const std::string& line)>;
  /// `path` may be empty: no file. Lines are appended and flushed one by one; that a full disk
  /// refuses them `echo` is told once, on any rank.
  /// Throws StorageError if the file cannot be opened.
  Log(const std::string& path, int64_t rank, Echo echo);

  /// To the file and the console.
  void info(const std::string& text);
  /// To the file only.
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
