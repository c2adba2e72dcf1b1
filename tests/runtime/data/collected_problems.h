#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/data_source.h"

namespace shoal::testing {

/// Problems as lines, "path: what".
class CollectedProblems : public Problems {
 public:
  void add(std::string_view path, std::string_view what) override {
    lines.push_back(std::string(path) + ": " + std::string(what));
  }
  std::vector<std::string> lines;
};

/// What check_training refuses.
inline std::vector<std::string> training_mistakes_of(const DataSource& source) {
  CollectedProblems problems;
  source.check_training(problems);
  return problems.lines;
}

}  // namespace shoal::testing
