#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

#include "benchmarks/support/program.h"

namespace shoal::bench {
namespace {

std::map<std::string, Benchmark::Main>& benchmarks() {
  static std::map<std::string, Benchmark::Main> known;
  return known;
}

int start(int argc, char** argv) {
  const std::string name = std::filesystem::path(argc > 0 ? argv[0] : "").filename();
  const auto found = benchmarks().find(name);
  if (found != benchmarks().end()) return found->second(argc, argv);
  std::fprintf(stderr, "'%s' is no benchmark; the links beside this program are:\n", name.c_str());
  for (const auto& entry : benchmarks()) std::fprintf(stderr, "  %s\n", entry.first.c_str());
  return 2;
}

}  // namespace

Benchmark::Benchmark(const std::string& name, Main main) { benchmarks()[name + "_bench"] = main; }

}  // namespace shoal::bench

int main(int argc, char** argv) { return shoal::bench::start(argc, argv); }
