#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace shoal::bench {

/// A contender in Python: a script of benchmarks/peers/, of the tree it was built from or else
/// below the working directory, that says `ready`, reads JSON lines from its standard input and
/// answers each with a JSON line on its standard output.
class PeerProcess {
 public:
  /// Starts `script` with the interpreter `python`. Without a Python that has PyTorch: prints a
  /// line that says so and returns nullptr.
  static std::unique_ptr<PeerProcess> start(const std::string& python, const std::string& script);
  PeerProcess(const PeerProcess&) = delete;
  /// Closes its input, which ends it, and waits.
  ~PeerProcess();

  /// Throws std::runtime_error if the process has ended.
  nlohmann::json ask(const nlohmann::json& question);

 private:
  PeerProcess(const std::string& python, const std::string& script);
  /// Empty at the end of its output.
  std::string read_line();

  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace shoal::bench
