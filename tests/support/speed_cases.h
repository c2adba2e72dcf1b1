#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace shoal::testing {

using Overrides = std::vector<std::string>;

/// How a training is run, which must not show in what it computes.
struct SpeedCase {
  std::string name;
  Overrides what;                               ///< what is trained, on top of kEqualityRecipe
  Overrides how;                                ///< fits two ranks and more, in nodes of two
  std::vector<std::string> noise_weights = {};  ///< as EqualityCase's

  friend std::ostream& operator<<(std::ostream& out, const SpeedCase& test) {
    return out << test.name;
  }
};

/// Every switch alone, and each router once with all of them.
std::vector<SpeedCase> speed_cases();

/// A selection of speed_cases with each switch once: few enough to be run by several processes.
std::vector<SpeedCase> speed_selection();

}  // namespace shoal::testing
