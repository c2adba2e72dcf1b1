#include "launch/job/launch_info.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/signals.h"
#include "runtime/base/text.h"
#include "runtime/device/process_parts.h"

namespace shoal {
namespace {

std::optional<int64_t> integer(const std::optional<std::string>& text) {
  if (!text || text->empty()) return std::nullopt;
  char* end = nullptr;
  const long long value = std::strtoll(text->c_str(), &end, 10);
  if (*end != '\0') return std::nullopt;
  return value;
}

constexpr int64_t kMostThreads = 4096;  // as run.threads

/// The first number of a list, which OpenMP has for nested teams; 0 if it is no number of threads.
std::optional<int64_t> threads_of(const std::string& list) {
  if (list.empty()) return std::nullopt;
  const std::string first(list.begin(), std::ranges::find(list, ','));
  const int64_t threads = integer(first).value_or(0);
  return threads >= 1 && threads <= kMostThreads ? threads : 0;
}

/// The CPUs that the rank was bound to, else its share of the machine's.
int64_t cpus_of_rank(const LaunchInfo& launch) {
  const int64_t sharers = launch.bound ? 1 : std::max<int64_t>(1, launch.local_size);
  return std::max<int64_t>(1, cpus_of_process(0) / sharers);
}

/// The tasks of node `index` in Slurm's list of tasks per node, `3(x2),1`; nothing if it has none.
std::optional<int64_t> tasks_of_node(const std::string& text, int64_t index) {
  for (const std::string& word : split(text, ',')) {
    long tasks = 0, nodes = 1;
    std::sscanf(word.c_str(), "%ld(x%ld)", &tasks, &nodes);
    index -= nodes;
    if (index < 0) return tasks > 0 ? std::optional<int64_t>(tasks) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::string cache_folder(const Environment& environment) {
  if (!environment) return "";
  const std::string given = environment("XDG_CACHE_HOME").value_or("");
  if (!given.empty()) return given + "/shoal";
  const std::string home = environment("HOME").value_or("");
  return home.empty() ? "" : home + "/.cache/shoal";
}

int64_t cpus_of_process(int process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool is_known = sched_getaffinity(process, sizeof(set), &set) == 0;
  return is_known ? CPU_COUNT(&set) : std::thread::hardware_concurrency();
}

LaunchInfo read_launch_info(const Environment& environment, int64_t (*cpus_of)(int process)) {
  LaunchInfo info;
  info.cache_folder = cache_folder(environment);
  const std::optional<int64_t> columns = integer(environment("SHOAL_COLUMNS"));
  if (columns && *columns > 0) info.columns = columns;
  info.threads = threads_of(environment("OMP_NUM_THREADS").value_or(""));
  if (const auto world = integer(environment("OMPI_COMM_WORLD_SIZE"))) {
    info.launcher = "mpirun";
    info.world = *world;
    info.rank = integer(environment("OMPI_COMM_WORLD_RANK")).value_or(0);
    info.local_rank = integer(environment("OMPI_COMM_WORLD_LOCAL_RANK")).value_or(0);
    info.local_size = integer(environment("OMPI_COMM_WORLD_LOCAL_SIZE")).value_or(1);
    // Open MPI 4 sets a variable for bound ranks; in 5 they may use fewer CPUs than their launcher.
    const bool is_version_4 = environment("OMPI_MCA_orte_num_nodes").has_value();
    info.bound = is_version_4 ? environment("OMPI_MCA_orte_bound_at_launch").has_value()
                              : cpus_of(0) < cpus_of(getppid());
    return info;
  }
  // A batch script has SLURM_NTASKS too; only a step started by srun has a step id.
  const auto step_tasks = integer(environment("SLURM_STEP_NUM_TASKS"));
  if (environment("SLURM_STEP_ID").has_value() && step_tasks) {
    info.launcher = "srun";
    info.world = *step_tasks;
    info.rank = integer(environment("SLURM_PROCID")).value_or(0);
    info.local_rank = integer(environment("SLURM_LOCALID")).value_or(0);
    const int64_t nodes = integer(environment("SLURM_STEP_NUM_NODES")).value_or(1);
    const auto tasks = tasks_of_node(environment("SLURM_STEP_TASKS_PER_NODE").value_or(""),
                                     integer(environment("SLURM_NODEID")).value_or(0));
    info.local_size =
        tasks.value_or(std::max<int64_t>(1, info.world / std::max<int64_t>(1, nodes)));
    info.bound = environment("SLURM_CPUS_PER_TASK").has_value();
    return info;
  }
  // MPICH, Intel MPI and their kin. A world of one needs no launcher.
  const auto rank = integer(environment("PMI_RANK"));
  const auto size = integer(environment("PMI_SIZE"));
  if (size.value_or(1) > 1 || (rank && !size)) {
    info.is_foreign = true;
    info.world = size.value_or(1);
    info.rank = rank.value_or(0);
  }
  return info;
}

std::unique_ptr<Communicator> make_world(const LaunchInfo& launch) {
  if (launch.is_foreign) {
    throw Error(ExitCode::kTopology,
                "started by the launcher of another MPI than Open MPI (PMI_RANK or PMI_SIZE is "
                "set): each process would train alone",
                "start with Open MPI's mpirun (`shoal doctor` names it) or with srun");
  }
  if (launch.launcher.empty()) return make_self_communicator();
  std::unique_ptr<Communicator> world = make_mpi_communicator();
  if (launch.world > 1 && world->size() == 1) {
    throw Error(
        ExitCode::kTopology,
        fmt::format("{} started {} processes, but MPI sees a world of 1", launch.launcher,
                    launch.world),
        launch.launcher == "srun"
            ? "use `srun --mpi=pmix`, or start with mpirun inside the allocation"
            : "use the mpirun of the MPI that shoal was built with (`shoal doctor` names it)");
  }
  return world;
}

int64_t choose_threads(std::optional<int64_t> wanted, const LaunchInfo& launch) {
  if (!wanted && launch.threads == 0) {
    throw ConfigError("OMP_NUM_THREADS is not a number from 1 to " + std::to_string(kMostThreads) +
                          "; unset it, or set run.threads",
                      ExitCode::kTopology);
  }
  if (!wanted) wanted = launch.threads;
  if (wanted) return std::max<int64_t>(1, *wanted);
  return cpus_of_rank(launch);
}

int64_t choose_workers(const LaunchInfo& launch) {
  return std::max<int64_t>(1, cpus_of_rank(launch) - at::get_num_threads());
}

void set_up_torch(std::optional<int64_t> threads, bool deterministic, const LaunchInfo& launch) {
  const auto num_threads = static_cast<int>(choose_threads(threads, launch));
  with_signals_blocked([num_threads] {  // these threads stay
    at::set_num_threads(num_threads);
    at::set_num_interop_threads(1);
    at::parallel_for(0, num_threads, 1, [](auto, auto) {});
  });
  process_parts().set_up();
  if (deterministic) use_deterministic_algorithms();
}

void use_deterministic_algorithms() {
  // cuBLAS asks the environment, at its first call.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  // Whatever is read was written before, so that filling memory would only cost time.
  context.setDeterministicFillUninitializedMemory(false);
}

std::string working_directory() {
  std::error_code failed;
  return std::filesystem::current_path(failed).string();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace shoal
