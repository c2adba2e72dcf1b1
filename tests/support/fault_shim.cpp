// Preloaded into a program: lets its n-th file call fail or kill it, or a write to some file; or
// kills it at its n-th call of MPI.
//   FAULT_AT     which file call, from 1, counted from access("saving-begins")
//   FAULT_FROM   a part of a path: counted from the first call with it instead
//   FAULT_MPI    which call of MPI kills, from 1, counted from there too
//   FAULT_SLEEP  with it that call fails instead, and syncs of files take so many seconds
//   FAULT_RANK   only in this rank of a job
//   FAULT_KIND   "kill", or the number of an errno
//   FAULT_MARK   a file that is made just before the kill
//   FAULT_COUNT  a file that receives the numbers of file and MPI calls when the program ends in
//                order; of rank R, FAULT_COUNT.R
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

#include <atomic>

namespace {

std::atomic<bool> is_counting{false};
std::atomic<long> calls{0}, mpi_calls{0};

bool equal(const char* variable, long number) {
  const char* text = getenv(variable);
  return text != nullptr && atol(text) == number;
}

/// Mpirun and scripts hand the variables on to the ranks, but are none.
bool is_meant() {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  return getenv("FAULT_RANK") == nullptr || (rank != nullptr && equal("FAULT_RANK", atol(rank)));
}

void die() {
  const char* mark = getenv("FAULT_MARK");
  if (mark != nullptr) syscall(SYS_openat, AT_FDCWD, mark, O_CREAT | O_WRONLY, 0600);
  raise(SIGKILL);
}

/// Counts a call; true if it must fail.
bool fails() {
  if (!is_counting) return false;
  if (!equal("FAULT_AT", ++calls) || !is_meant()) return false;
  const char* kind = getenv("FAULT_KIND");
  if (kind == nullptr || strcmp(kind, "kill") == 0) die();
  errno = atoi(kind);
  return true;
}

/// Counts a call with a path, which may be where counting begins.
bool fails_at(const char* path) {
  const char* from = getenv("FAULT_FROM");
  if (from != nullptr && strstr(path, from) != nullptr) is_counting = true;
  return fails();
}

/// Counts a call; true if it must fail.
bool mpi_fails() {
  if (!is_counting || !equal("FAULT_MPI", ++mpi_calls) || !is_meant()) return false;
  if (getenv("FAULT_SLEEP") == nullptr) die();
  return true;
}

void sleep_in_sync() {
  const char* seconds = getenv("FAULT_SLEEP");
  if (seconds != nullptr && is_counting && is_meant()) sleep(static_cast<unsigned>(atoi(seconds)));
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

void write_counts() {
  const char* name = getenv("FAULT_COUNT");
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (name == nullptr || !is_counting) return;
  char path[4096];
  snprintf(path, sizeof path, "%s%s%s", name, rank == nullptr ? "" : ".", rank ? rank : "");
  FILE* file = fopen(path, "w");
  if (file == nullptr) return;
  fprintf(file, "%ld %ld\n", calls.load(), mpi_calls.load());
  fclose(file);
}

/// Writes the counts of a program that ends with destructors; others end by _exit().
struct CountAtExit {
  ~CountAtExit() { write_counts(); }
} count_at_exit;

}  // namespace

extern "C" {

[[noreturn]] void _exit(int code) {
  write_counts();
  syscall(SYS_exit_group, code);
  __builtin_unreachable();
}
int access(const char* path, int mode) {
  if (strcmp(path, "saving-begins") == 0) is_counting = true;
  return static_cast<int>(syscall(SYS_faccessat, AT_FDCWD, path, mode));
}
int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return fails_at(path) ? -1 : static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return fails_at(path) ? -1 : static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
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
int fsync(int file) {
  sleep_in_sync();
  return fails() ? -1 : static_cast<int>(syscall(SYS_fsync, file));
}
int close(int file) {
  const bool failing = fails();
  const int result = static_cast<int>(syscall(SYS_close, file));
  return failing ? -1 : result;
}
int rename(const char* from, const char* to) noexcept {
  return fails() ? -1 : next<int(const char*, const char*)>("rename")(from, to);
}
int mkdir(const char* path, mode_t mode) noexcept {
  return fails_at(path) ? -1 : next<int(const char*, mode_t)>("mkdir")(path, mode);
}
int unlink(const char* path) noexcept {
  return fails() ? -1 : next<int(const char*)>("unlink")(path);
}
int rmdir(const char* path) noexcept {
  return fails() ? -1 : next<int(const char*)>("rmdir")(path);
}

// Handles are as wide as registers, and a caller's stack holds words beyond its arguments.
#define WORDS long a, long b, long c, long d, long e, long f, long g, long h, long i
#define COUNTED(name)                                           \
  long name(WORDS) {                                            \
    if (mpi_fails()) return 16; /* MPI_ERR_OTHER */             \
    return next<long(WORDS)>(#name)(a, b, c, d, e, f, g, h, i); \
  }
COUNTED(MPI_Isend)
COUNTED(MPI_Irecv)
COUNTED(MPI_Iallreduce)
COUNTED(MPI_Iallgatherv)
COUNTED(MPI_Ireduce_scatter)
COUNTED(MPI_Ibcast)
COUNTED(MPI_Wait)

}  // extern "C"
