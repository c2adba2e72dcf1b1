#pragma once

#include <cstdint>
#include <memory>

#include "parallel/communicator.h"

namespace shoal {

/// The world as expert × replica. Rank r stands at expert axis r % expert_ranks and replica axis
/// r / expert_ranks: units are sharded over `expert`, whose ranks are neighbours; equal shards
/// meet in `replica`.
struct RankGrid {
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> expert;
  std::unique_ptr<Communicator> replica;
};

/// Collective. Throws ConfigError (exit 11) with the arithmetic and the valid choices unless
/// expert_ranks divides the world.
RankGrid make_rank_grid(std::unique_ptr<Communicator> world, int64_t expert_ranks);

}  // namespace shoal
