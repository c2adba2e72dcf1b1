#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <fstream>

namespace shoal::testing {

/// From now on this process gets so much more address space; for the process of a death test. Each
/// thread takes some for its stack.
inline void allow_more_memory(int64_t bytes) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto limit = static_cast<rlim_t>(pages * 4096 + bytes);
  const rlimit limits{limit, limit};
  setrlimit(RLIMIT_AS, &limits);
}

}  // namespace shoal::testing
