#pragma once

#include <cstdint>

#include "parallel/comm/communicator.h"

namespace shoal {

/// This process among those on its machine.
struct LocalRank {
  int64_t rank = 0;
  int64_t size = 1;
};

/// Collective. Ranks of `comm` that share memory, by MPI_Comm_split_type; {0, 1} for the
/// communicator of a process that runs alone. Throws TORCH_CHECK for other kinds.
LocalRank local_rank_of(Communicator& comm);

}  // namespace shoal
