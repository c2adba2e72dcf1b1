#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace shoal::bench {

/// A contender in Python: a script of benchmarks/peers/, of the tree it was built from or else
/// below the working directory, that writes `ready`, reads JSON lines from its standard input and
/// answers each with a JSON line on its standard output.
class PeerProcess {
 public:
  /// Starts `script` with the interpreter `python`. If there is none, or it lacks what `needs`
  /// names (exit code 69): prints a line with that reason and returns nullptr. Throws
  /// std::runtime_error with the exit code if the process does anything but answer `ready`.
  static std::unique_ptr<PeerProcess> start(
      const std::string& python, const std::string& script,
      const std::string& needs = "PyTorch (pip install torch)");
  PeerProcess(const PeerProcess&) = delete;
  /// Closes its input, which ends it, and waits.
  ~PeerProcess();

  /// Throws std::runtime_error if the process has ended.
  nlohmann::json ask(const nlohmann::json& question);

 private:
  PeerProcess(const std::string& python, const std::string& script);
  /// Closes its input and output and waits; its status as by waitpid.
  int end();
  /// Empty at the end of its output.
  std::string read_line();

  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace shoal::bench
