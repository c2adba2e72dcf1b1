// Preloaded into a program: lets its n-th file call fail or kill it, or a write to some file.
//   FAULT_AT     which call, from 1, counted from access("saving-begins")
//   FAULT_KIND   "kill", or the number of an errno
//   FAULT_COUNT  a file that receives the number of calls when the program ends in order
//   FAULT_IF     a file: once it exists, the next write to a file whose path contains FAULT_PATH
//                fails with ENOSPC, as on a full disk, and removes it
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace {

long calls = -1;  // not counting yet

/// Counts a call; true if it must fail.
bool fails() {
  if (calls < 0) return false;
  ++calls;
  const char* at = getenv("FAULT_AT");
  if (at == nullptr || atol(at) != calls) return false;
  const char* kind = getenv("FAULT_KIND");
  if (kind == nullptr || strcmp(kind, "kill") == 0) raise(SIGKILL);
  errno = atoi(kind);
  return true;
}

/// True if this write must fail as on a full disk.
bool is_full(int file) {
  const char* condition = getenv("FAULT_IF");
  const char* part = getenv("FAULT_PATH");
  if (condition == nullptr || part == nullptr) return false;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = '\0';
  if (strstr(path, part) == nullptr) return false;
  return syscall(SYS_unlinkat, AT_FDCWD, condition, 0) == 0;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

struct CountAtExit {
  ~CountAtExit() {
    const char* path = getenv("FAULT_COUNT");
    FILE* file = path == nullptr ? nullptr : fopen(path, "w");
    if (file == nullptr) return;
    fprintf(file, "%ld\n", calls);
    fclose(file);
  }
} count_at_exit;

}  // namespace

extern "C" {

int access(const char* path, int mode) {
  if (strcmp(path, "saving-begins") == 0) calls = 0;
  return static_cast<int>(syscall(SYS_faccessat, AT_FDCWD, path, mode));
}
int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return fails() ? -1 : static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return fails() ? -1 : static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}
ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  return fails() ? -1 : syscall(SYS_pread64, file, bytes, count, offset);
}
ssize_t write(int file, const void* bytes, size_t count) {
  if (is_full(file)) {
    errno = ENOSPC;
    return -1;
  }
  return fails() ? -1 : syscall(SYS_write, file, bytes, count);
}
int fsync(int file) { return fails() ? -1 : static_cast<int>(syscall(SYS_fsync, file)); }
int close(int file) {
  const bool failing = fails();
  const int result = static_cast<int>(syscall(SYS_close, file));
  return failing ? -1 : result;
}
int rename(const char* from, const char* to) noexcept {
  return fails() ? -1 : next<int(const char*, const char*)>("rename")(from, to);
}
int mkdir(const char* path, mode_t mode) noexcept {
  return fails() ? -1 : next<int(const char*, mode_t)>("mkdir")(path, mode);
}
int unlink(const char* path) noexcept {
  return fails() ? -1 : next<int(const char*)>("unlink")(path);
}
int rmdir(const char* path) noexcept {
  return fails() ? -1 : next<int(const char*)>("rmdir")(path);
}

}  // extern "C"
