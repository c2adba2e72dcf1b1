#pragma once

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/files/file_system.h"

namespace shoal::testing {

/// The real file system, which fails or dies where a test demands it. Counts its calls from 0.
class FailingFileSystem final : public FileSystem {
 public:
  int64_t fail_at = -1;        ///< this call fails…
  bool fail_for_ever = false;  ///< …and all after it
  int error = EIO;
  bool kill = false;           ///< instead of failing, the process dies as under kill -9
  bool store_wrongly = false;  ///< instead of failing, a write stores another last byte
  int64_t longest_write = -1;  ///< writes take at most so many bytes
  int64_t free_bytes_answer = -1;

  int64_t calls() const { return static_cast<int64_t>(log_.size()); }
  /// "open PATH", "write", "rename FROM TO", … in order.
  const std::vector<std::string>& log() const { return log_; }

  int open(const std::string& path, Mode mode) override {
    if (fails("open " + path)) return -error;
    return real_.open(path, mode);
  }
  int open_directory(const std::string& path) override {
    if (fails("open_directory " + path)) return -error;
    return real_.open_directory(path);
  }
  int64_t write(int file, const void* bytes, size_t count) override {
    if (fails("write")) {
      if (!store_wrongly) return -error;
      std::string wrong(static_cast<const char*>(bytes), count);
      wrong.back() ^= 1;
      return real_.write(file, wrong.data(), count);
    }
    if (longest_write >= 0) count = std::min(count, static_cast<size_t>(longest_write));
    return real_.write(file, bytes, count);
  }
  int sync(int file) override {
    if (fails("sync")) return -error;
    return real_.sync(file);
  }
  int close(int file) override {
    const bool failing = fails("close");
    const int result = real_.close(file);  // the descriptor goes either way
    return failing ? -error : result;
  }
  int rename(const std::string& from, const std::string& to) override {
    if (fails("rename " + from + " " + to)) return -error;
    return real_.rename(from, to);
  }
  int make_directory(const std::string& path) override {
    if (fails("make_directory " + path)) return -error;
    return real_.make_directory(path);
  }
  int remove_file(const std::string& path) override {
    if (fails("remove_file " + path)) return -error;
    return real_.remove_file(path);
  }
  int remove_directory(const std::string& path) override {
    if (fails("remove_directory " + path)) return -error;
    return real_.remove_directory(path);
  }
  int64_t free_bytes(const std::string& path) override {
    if (fails("free_bytes")) return -error;
    return free_bytes_answer >= 0 ? free_bytes_answer : real_.free_bytes(path);
  }

 private:
  PosixFileSystem real_;
  std::mutex mutex_;
  std::vector<std::string> log_;

  bool fails(const std::string& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int64_t number = static_cast<int64_t>(log_.size());
    log_.push_back(call);
    if (fail_at < 0) return false;
    if (number != fail_at && !(fail_for_ever && number > fail_at)) return false;
    if (kill) ::raise(SIGKILL);
    return true;
  }
};

}  // namespace shoal::testing
