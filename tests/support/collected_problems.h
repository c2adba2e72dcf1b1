#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/options/config.h"

namespace shoal::testing {

/// Problems as lines, "path: what".
class CollectedProblems : public Problems {
 public:
  void add(std::string_view path, std::string_view what) override {
    lines.push_back(std::string(path) + ": " + std::string(what));
  }
  std::vector<std::string> lines;
};

}  // namespace shoal::testing
