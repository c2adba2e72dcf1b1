#include "parallel/comm/topology.h"

#include <fmt/format.h>

namespace shoal {

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

}  // namespace shoal
