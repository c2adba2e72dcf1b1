#pragma once

#include <functional>

#include "parallel/comm/communicator.h"

namespace shoal::testing {

/// Runs `body` once per rank, each rank a thread of this process with one intra-op thread.
///
/// Rethrows the exception of the rank that failed first. Nothing hangs: when a rank throws, returns
/// while others still wait for it, calls something else than its peers, or when every rank waits,
/// the waits of the others fail with a CommError that says which rank did what.
///
/// A started call posts its buffers under its number in the group; the last rank to post moves the
/// data for all. So any order of waits works, and sums run in rank order. `abort(code)` throws
/// ThreadRankAborted. Communicators must not outlive `body`.
void run_ranks(int64_t num_ranks, const std::function<void(Communicator& world)>& body);

/// run_ranks for a body that takes the communicator over (make_rank_grid wants to own it).
void run_owning_ranks(int64_t num_ranks,
                      const std::function<void(std::unique_ptr<Communicator> world)>& body);

/// Stands for the end of the job that Communicator::abort asked for.
struct ThreadRankAborted : std::runtime_error {
  ThreadRankAborted(int64_t rank, int exit_code)
      : std::runtime_error("rank " + std::to_string(rank) + " called abort(" +
                           std::to_string(exit_code) + ")"),
        exit_code(exit_code) {}
  int exit_code;
};

}  // namespace shoal::testing
