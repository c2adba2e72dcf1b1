#pragma once

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <stdexcept>

namespace shoal::testing {

/// Most bytes of memory that `work` held beside what the process holds already. It runs in a child
/// process, whose peak is its own; what it changes or throws is lost. Not for sanitizers, which
/// keep what is freed.
inline int64_t peak_bytes_of(const std::function<void()>& work) {
  ::malloc_trim(0);
  const auto peak_kib = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<int64_t>(usage.ru_maxrss);
  };
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    const int64_t before_kib = peak_kib();
    try {
      work();
    } catch (...) {
    }
    const int64_t bytes = (peak_kib() - before_kib) * 1024;
    ::_exit(::write(ends[1], &bytes, sizeof bytes) == sizeof bytes ? 0 : 1);
  }
  ::close(ends[1]);
  int64_t bytes = -1;
  const bool is_read = ::read(ends[0], &bytes, sizeof bytes) == sizeof bytes;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!is_read || status != 0) throw std::runtime_error("the child did not end in order");
  return bytes;
}

}  // namespace shoal::testing
