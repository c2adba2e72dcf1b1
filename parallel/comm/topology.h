#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// Why a world cannot be cut into a grid.
struct TopologyProblem {
  std::string key;   ///< of the recipe, below `parallel`: "expert_ranks" or "ranks_per_node"
  std::string what;  ///< with the arithmetic
};

/// "5 / 2 = 2.5".
std::string quotient(int64_t a, int64_t b);

/// The one rule of topology: expert_ranks and ranks_per_node divide the world, and one of the two
/// the other. None if it holds. `world`: nothing if it is not known yet. `ranks_per_node`: 0 for
/// all on one.
std::vector<TopologyProblem> topology_problems(std::optional<int64_t> world, int64_t expert_ranks,
                                               int64_t ranks_per_node = 0);

}  // namespace shoal
