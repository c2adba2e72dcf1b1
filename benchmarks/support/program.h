#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/bench.h"

namespace CLI {
class App;
}

namespace shoal::bench {

/// Makes a benchmark known: one per file, at namespace scope. All are in one program, which starts
/// the benchmark that it is called by, as `NAME_bench`.
class Benchmark {
 public:
  using Main = int (*)(int argc, char** argv);
  Benchmark(const std::string& name, Main main);
};

/// The command line of a benchmark: --rounds, --json, and what the program adds.
class Program {
 public:
  /// `name` goes into the report; `rounds` is the default number of timed turns.
  Program(std::string name, const std::string& what, int64_t rounds);
  ~Program();

  // Values for `target`, which must outlive run(); a `name` without dashes is a positional.
  void add(const std::string& name, std::string& target, const std::string& what);
  void add(const std::string& name, int64_t& target, const std::string& what);
  void add(const std::string& name, std::vector<std::string>& targets, const std::string& what);
  void add(const std::string& name, std::vector<int64_t>& targets, const std::string& what);
  /// A positional that the command line must have.
  void require(const std::string& name, std::string& target, const std::string& what);
  /// Some of the `choices` that are there, all by default; run() refuses any other.
  void add_choices(const std::string& name, std::vector<std::string>& choices,
                   const std::string& what);

  int64_t rounds() const { return rounds_; }

  /// Parses, measures and writes the report if it has rows (ranks other than 0 add none). Returns
  /// the exit status; a failure of `measure` is printed and ends the process with 1.
  int run(int argc, char** argv, const std::function<void(Report&)>& measure);

 private:
  std::string name_;
  std::string json_;
  int64_t rounds_;
  std::unique_ptr<CLI::App> options_;
};

}  // namespace shoal::bench
