#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace shoal::bench {

/// A contender that lives in another process, usually Python: it reads lines from its standard
/// input and answers each with one line on its standard output.
class PeerProcess {
 public:
  /// Starts `command` (program, then arguments) in $PATH. Throws std::runtime_error if it cannot.
  explicit PeerProcess(const std::vector<std::string>& command);
  PeerProcess(const PeerProcess&) = delete;
  /// Closes its input, which ends it, and waits.
  ~PeerProcess();

  /// Sends a line and returns the answer without its line break. Throws std::runtime_error if the
  /// process has ended.
  std::string ask(const std::string& line);

 private:
  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace shoal::bench
