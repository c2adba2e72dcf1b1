#include "parallel/rank_grid.h"

#include <string>
#include <utility>

#include "runtime/error.h"
#include "runtime/suggest.h"

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

void check_divides(int64_t world, int64_t expert_ranks) {
  if (expert_ranks >= 1 && world % expert_ranks == 0) return;
  std::string arithmetic;
  if (expert_ranks >= 1) {
    arithmetic = " (" + std::to_string(world) + " = " + std::to_string(expert_ranks) + " x " +
                 std::to_string(world / expert_ranks) + " + " +
                 std::to_string(world % expert_ranks) + ")";
  }
  throw ConfigError("parallel.expert_ranks: " + std::to_string(expert_ranks) +
                        " does not divide the world of " + counted(world, "rank") + arithmetic +
                        "; valid: " + divisors_of(world),
                    ExitCode::kTopology);
}

}  // namespace

RankGrid make_rank_grid(std::unique_ptr<Communicator> world, int64_t expert_ranks) {
  check_divides(world->size(), expert_ranks);
  const int64_t rank = world->rank();
  RankGrid grid;
  grid.expert = world->split(rank / expert_ranks, rank);
  grid.replica = world->split(rank % expert_ranks, rank);
  grid.world = std::move(world);
  return grid;
}

}  // namespace shoal
