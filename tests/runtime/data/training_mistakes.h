#pragma once

#include <string>
#include <vector>

#include "runtime/data/data_source.h"
#include "tests/support/collected_problems.h"

namespace shoal::testing {

/// What check_training refuses.
inline std::vector<std::string> training_mistakes_of(const DataSource& source) {
  CollectedProblems problems;
  source.check_training(problems);
  return problems.lines;
}

}  // namespace shoal::testing
