#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// A program that includes this reads files by calls that can fail, and asks for threads by one that
// can be refused.
namespace shoal::testing {

/// While it lives, calls that open or read files whose path contains `part` fail. It sees every
/// call of the program, by any thread; one at a time may live.
class FailingReads {
 public:
  static constexpr int64_t kAlways = int64_t{1} << 40;

  FailingReads(std::string part, int error, int64_t count = kAlways)
      : part_(std::move(part)), error_(error), left_(count) {
    const std::lock_guard lock(mutex());
    living() = this;
  }
  FailingReads(const FailingReads&) = delete;
  ~FailingReads() {
    const std::lock_guard lock(mutex());
    living() = nullptr;
  }
  int64_t left() const { return left_; }
  /// "open PATH", "read PATH", "drop PATH" (its copy in memory), of paths with `part`.
  const std::vector<std::string>& log() const { return log_; }

  /// True, with errno, if the call must fail.
  static bool fails(const char* call, const std::string& path) {
    const std::lock_guard lock(mutex());
    FailingReads* reads = living();
    if (reads == nullptr || path.find(reads->part_) == std::string::npos) return false;
    reads->log_.push_back(std::string(call) + " " + path);
    if (reads->left_ == 0) return false;
    --reads->left_;
    errno = reads->error_;
    return true;
  }
  static std::string path_of(int file) {
    std::array<char, 4096> path{};
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    return {path.data(), static_cast<size_t>(std::max<ssize_t>(
                             0, ::readlink(link.c_str(), path.data(), path.size())))};
  }

 private:
  static std::mutex& mutex() {
    static std::mutex own;
    return own;
  }
  static FailingReads*& living() {
    static FailingReads* own = nullptr;
    return own;
  }
  std::string part_;
  int error_;
  int64_t left_;
  std::vector<std::string> log_;
};

/// While true, this thread gets no new ones.
inline thread_local bool refuses_threads = false;

}  // namespace shoal::testing

extern "C" {

__attribute__((weak)) int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  if ((flags & O_ACCMODE) == O_RDONLY && shoal::testing::FailingReads::fails("open", path)) {
    return -1;
  }
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

__attribute__((weak)) int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  using shoal::testing::FailingReads;
  if (FailingReads::fails("open", FailingReads::path_of(folder) + "/" + path)) return -1;
  return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}

__attribute__((weak)) ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  using shoal::testing::FailingReads;
  if (FailingReads::fails("read", FailingReads::path_of(file))) return -1;
  return ::syscall(SYS_pread64, file, bytes, count, offset);
}

__attribute__((weak)) int posix_fadvise(int file, off_t offset, off_t count, int advice) noexcept {
  using shoal::testing::FailingReads;
  if (advice == POSIX_FADV_DONTNEED && FailingReads::fails("drop", FailingReads::path_of(file))) {
    return errno;
  }
  return ::syscall(SYS_fadvise64, file, offset, count, advice) == 0 ? 0 : errno;
}

__attribute__((weak)) int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                         void* (*run)(void*), void* argument) noexcept {
  if (shoal::testing::refuses_threads) return EAGAIN;
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static auto* const next = reinterpret_cast<Create*>(::dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, run, argument);
}

}  // extern "C"
