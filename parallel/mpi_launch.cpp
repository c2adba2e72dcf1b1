#include "parallel/mpi_launch.h"

#include <array>
#include <charconv>

#include "runtime/error.h"

namespace shoal {
namespace {

// SLURM_NTASKS is left out: it is also set for a program that a batch script starts alone.
constexpr std::array kSizeVariables = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};

std::optional<int64_t> parse_size(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 1) return std::nullopt;
  return value;
}

}  // namespace

std::optional<LaunchedWorld> launched_world(const EnvironmentLookup& lookup) {
  for (const char* variable : kSizeVariables) {
    const std::optional<std::string> text = lookup(variable);
    if (!text) continue;
    if (const std::optional<int64_t> size = parse_size(*text))
      return LaunchedWorld{variable, *size};
  }
  return std::nullopt;
}

void check_launched_world(int64_t world_size, const EnvironmentLookup& lookup) {
  const std::optional<LaunchedWorld> launched = launched_world(lookup);
  if (!launched || world_size > 1 || launched->size == 1) return;
  const std::string count = std::to_string(launched->size);
  throw ConfigError(
      {launched->variable + " says " + count +
           " processes were started, but each sees a world of "
           "one rank: the launcher belongs to another MPI than this program's Open MPI",
       "use that Open MPI's own `mpirun -np " + count + " shoal ...`, or `srun --mpi=pmix -n " +
           count + " shoal ...` under Slurm"},
      ExitCode::kTopology);
}

}  // namespace shoal
