#include "parallel/comm/rank_grid.h"

#include <algorithm>
#include <string>
#include <utility>

#include "parallel/comm/topology.h"
#include "runtime/base/error.h"

namespace shoal {

void RankGrid::throw_if_failed() const {
  for (const auto* group : {&world, &gpu_world, &expert, &replica, &intra_node, &inter_node}) {
    if (*group) (*group)->throw_if_failed();
  }
}

RankGrid make_rank_grid(std::unique_ptr<Communicator> world, int64_t expert_ranks,
                        int64_t ranks_per_node, std::unique_ptr<Communicator> gpu_world) {
  std::vector<std::string> lines;
  for (const auto& [key, what] : topology_problems(world->size(), expert_ranks, ranks_per_node)) {
    lines.push_back("parallel." + key + ": " + what);
  }
  if (!lines.empty()) throw ConfigError(lines, ExitCode::kTopology);
  if (ranks_per_node == 0) ranks_per_node = world->size();
  const int64_t rank = world->rank();
  const int64_t node_size = std::min(expert_ranks, ranks_per_node);
  RankGrid grid;
  grid.world = std::move(world);
  grid.gpu_world = std::move(gpu_world);
  grid.expert = grid.tensor_world().split(rank / expert_ranks, rank);
  grid.replica = grid.tensor_world().split(rank % expert_ranks, rank);
  grid.intra_node = grid.expert->split(grid.expert->rank() / node_size, rank);
  grid.inter_node = grid.expert->split(grid.expert->rank() % node_size, rank);
  return grid;
}

}  // namespace shoal
