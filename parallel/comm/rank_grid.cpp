#include "parallel/comm/rank_grid.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

std::string divisors_of(int64_t number) {
  std::string text;
  for (int64_t candidate = 1; candidate <= number; ++candidate) {
    if (number % candidate != 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(candidate);
  }
  return text;
}

void check_divides(int64_t world, const std::string& key, int64_t ranks) {
  if (ranks >= 1 && world % ranks == 0) return;
  std::string arithmetic;
  if (ranks >= 1) {
    arithmetic = " (" + std::to_string(world) + " = " + std::to_string(ranks) + " x " +
                 std::to_string(world / ranks) + " + " + std::to_string(world % ranks) + ")";
  }
  throw ConfigError("parallel." + key + ": " + std::to_string(ranks) +
                        " does not divide the world of " + counted(world, "rank") + arithmetic +
                        "; valid: " + divisors_of(world),
                    ExitCode::kTopology);
}

void check_nodes(int64_t expert_ranks, int64_t ranks_per_node) {
  if (expert_ranks % ranks_per_node == 0 || ranks_per_node % expert_ranks == 0) return;
  throw ConfigError("parallel.ranks_per_node: expert groups of " + counted(expert_ranks, "rank") +
                        " on nodes of " + std::to_string(ranks_per_node) +
                        " have unequal parts on them; one of the two must divide the other",
                    ExitCode::kTopology);
}

}  // namespace

void RankGrid::throw_if_failed() const {
  for (const auto* group : {&world, &gpu_world, &expert, &replica, &intra_node, &inter_node}) {
    if (*group) (*group)->throw_if_failed();
  }
}

RankGrid make_rank_grid(std::unique_ptr<Communicator> world, int64_t expert_ranks,
                        int64_t ranks_per_node, std::unique_ptr<Communicator> gpu_world) {
  if (ranks_per_node == 0) ranks_per_node = world->size();
  check_divides(world->size(), "expert_ranks", expert_ranks);
  check_divides(world->size(), "ranks_per_node", ranks_per_node);
  check_nodes(expert_ranks, ranks_per_node);
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
