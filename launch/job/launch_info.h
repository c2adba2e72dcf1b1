#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"
#include "runtime/yaml/recipe_document.h"

namespace shoal {

/// Function that looks up an environment variable; tests pass their own.
using config::Environment;

/// Looks up a variable of this process's own environment.
std::optional<std::string> environment_variable(const std::string& name);

/// The folder in which Shoal and launch/setup keep what they fetch or measure for this user, below
/// XDG_CACHE_HOME or HOME. Empty without either.
std::string cache_folder(const Environment& environment);

/// How the launcher (Open MPI's mpirun, srun) and the user started this process.
struct LaunchInfo {
  std::string launcher;  ///< "mpirun", "srun", or empty for a process that runs alone
  int64_t world = 1;     ///< number of ranks
  int64_t rank = 0;
  int64_t local_rank = 0;          ///< index among the ranks of this machine
  int64_t local_size = 1;          ///< number of ranks on this machine
  std::optional<int64_t> threads;  ///< from OMP_NUM_THREADS; 0: not a valid number
  bool bound = false;              ///< the launcher bound this process to CPUs of its own
  bool is_foreign = false;         ///< a launcher of another MPI: its ranks cannot find each other
  std::string cache_folder;        ///< result of cache_folder()
  /// SHOAL_COLUMNS, set by launch/run: columns of the terminal to which it forwards standard error.
  std::optional<int64_t> columns = {};
};

/// Number of CPUs that the process with this id may use; id 0: this process.
int64_t cpus_of_process(int process);
/// Reads the settings from the environment. Open MPI 5 sets no variable when it binds a rank, so a
/// rank with fewer CPUs than its parent process counts as bound. `cpus_of`: replaceable in tests.
LaunchInfo read_launch_info(const Environment& environment,
                            int64_t (*cpus_of)(int process) = cpus_of_process);

/// Communicator of all ranks: MPI under a launcher, else a single process without MPI. Throws Error
/// (exit 11) if the launcher is foreign, or started N > 1 processes that MPI sees as N separate
/// worlds, with the likely reasons.
std::unique_ptr<Communicator> make_world(const LaunchInfo& launch);

/// Number of threads for this rank, at least 1: `wanted` (run.threads), else OMP_NUM_THREADS, else
/// the CPUs this process may use, divided among the local ranks unless the launcher bound them.
/// Throws ConfigError (exit 11) for an OMP_NUM_THREADS that is not a number of threads.
int64_t choose_threads(std::optional<int64_t> wanted, const LaunchInfo& launch);

/// Number of threads of this rank that read samples, where data.workers is auto: the CPUs that its
/// other threads leave free, at least 1. Call after set_up_torch.
int64_t choose_workers(const LaunchInfo& launch);

/// Sets LibTorch up for a run: choose_threads(threads) intra-op threads, one inter-op thread,
/// algorithms that are deterministic or not, denormal numbers treated as zero, and reuse of freed
/// CPU tensor memory. Call once per process, before tensors are made.
void set_up_torch(std::optional<int64_t> threads, bool deterministic, const LaunchInfo& launch);

/// Restricts LibTorch to algorithms that give the same bits in every run on the same machines;
/// operators without one throw, by name. Once per process, before a GPU is used.
void use_deterministic_algorithms();

std::string host_name();
/// Returns the working directory; "" if it has been removed.
std::string working_directory();

}  // namespace shoal
