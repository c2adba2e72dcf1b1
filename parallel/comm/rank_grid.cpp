#include "parallel/comm/rank_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {

void RankGrid::throw_if_failed() const {
  for (const auto* group : {&world, &gpu_world, &expert, &replica, &intra_node, &inter_node}) {
    if (*group) (*group)->throw_if_failed();
  }
}

std::string quotient(int64_t a, int64_t b) {
  const double value = static_cast<double>(a) / static_cast<double>(b);
  std::string text = fmt::format("{:.4g}", value);
  if (text.find('.') == std::string::npos) text = fmt::format("{:.12g}", value);  // not cut off
  return fmt::format("{} / {} = {}", a, b, text);
}

std::vector<TopologyProblem> topology_problems(std::optional<int64_t> world, int64_t expert_ranks,
                                               int64_t ranks_per_node) {
  if (expert_ranks < 1) return {{"expert_ranks", "expected at least 1"}};
  std::vector<TopologyProblem> problems;
  if (world && *world % expert_ranks != 0) {
    problems.push_back(
        {"expert_ranks", "world = expert_ranks x replicas, but " + quotient(*world, expert_ranks)});
  }
  if (ranks_per_node == 0) return problems;
  if (world && *world % ranks_per_node != 0) {
    problems.push_back({"ranks_per_node",
                        "nodes of equal size are needed, but " + quotient(*world, ranks_per_node)});
  } else if (ranks_per_node % expert_ranks != 0 && expert_ranks % ranks_per_node != 0) {
    problems.push_back({"ranks_per_node",
                        fmt::format("{} expert ranks would have unequal parts on nodes of {}; one "
                                    "must divide the other",
                                    expert_ranks, ranks_per_node)});
  }
  return problems;
}

RankGrid make_rank_grid(std::unique_ptr<Communicator> world, int64_t expert_ranks,
                        int64_t ranks_per_node, std::unique_ptr<Communicator> gpu_world) {
  std::vector<std::string> lines;
  for (const auto& [key, what] : topology_problems(world->size(), expert_ranks, ranks_per_node)) {
    lines.push_back("parallel." + key + ": " + what);
  }
  if (!lines.empty()) throw ConfigError(lines, ExitCode::kTopology);
  const int64_t rank = world->rank();
  RankGrid grid;
  grid.world = std::move(world);
  grid.gpu_world = std::move(gpu_world);
  grid.expert = grid.tensor_world().split(rank / expert_ranks, rank, Traffic::kExchange);
  grid.replica = grid.tensor_world().split(rank % expert_ranks, rank);
  if (ranks_per_node == 0 || ranks_per_node >= expert_ranks) return grid;
  const int64_t place = grid.expert->rank();
  grid.intra_node = grid.expert->split(place / ranks_per_node, rank, Traffic::kExchange);
  grid.inter_node = grid.expert->split(place % ranks_per_node, rank, Traffic::kExchange);
  return grid;
}

}  // namespace shoal
