#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "parallel/communicator.h"

namespace shoal {

/// The value of an environment variable, or nothing; launch/ hands it in.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string&)>;

/// What the program that started this process says about the job.
struct LaunchedWorld {
  std::string variable;  ///< where it says so, e.g. OMPI_COMM_WORLD_SIZE
  int64_t size = 1;
};

/// The number of processes that mpirun or srun started together with this one; nothing if neither
/// did, then the process runs alone and needs no MPI.
std::optional<LaunchedWorld> launched_world(const EnvironmentLookup& lookup);

/// The classic failure of "N processes, each rank 0 of 1", as an mpirun of another MPI or an srun
/// without PMIx gives. Throws ConfigError (exit 11) with the right command if the launcher says
/// more than one process but the world has one.
void check_launched_world(int64_t world_size, const EnvironmentLookup& lookup);

/// This process among those on its machine.
struct LocalRank {
  int64_t rank = 0;
  int64_t size = 1;
};

/// Collective. Ranks of `comm` that share memory, by MPI_Comm_split_type; {0, 1} for the
/// communicator of a process that runs alone. Throws TORCH_CHECK for other kinds.
LocalRank local_rank_of(Communicator& comm);

}  // namespace shoal
