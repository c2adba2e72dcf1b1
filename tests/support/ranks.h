#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "parallel/comm/rank_grid.h"
#include "tests/support/thread_communicator.h"

namespace shoal::testing {

/// Runs `body` on expert_ranks * replicas thread ranks, each with its grid. `ranks_per_node`: as
/// make_rank_grid's.
inline void run_grid(int64_t expert_ranks, int64_t replicas,
                     const std::function<void(RankGrid& grid)>& body, int64_t ranks_per_node = 0) {
  run_owning_ranks(expert_ranks * replicas, [&](std::unique_ptr<Communicator> world) {
    RankGrid grid = make_rank_grid(std::move(world), expert_ranks, ranks_per_node);
    body(grid);
  });
}

/// The grid of a process that runs alone.
inline RankGrid self_grid() { return make_rank_grid(make_self_communicator(), 1); }

}  // namespace shoal::testing
