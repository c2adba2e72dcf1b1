#include "launch/machine/core_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "launch/machine/machine_facts.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// CPU limit of one control group, version 2 or 1, in CPUs; nullopt: no limit.
std::optional<double> cpu_limit_of_group(const std::string& folder) {
  double quota = 0, period = 0;
  if (std::ifstream stream(folder + "/cpu.max"); stream) {
    if (!(stream >> quota >> period)) return std::nullopt;  // "max 100000"
  } else {
    quota = static_cast<double>(number_in(folder + "/cpu.cfs_quota_us").value_or(0));
    period = static_cast<double>(number_in(folder + "/cpu.cfs_period_us").value_or(0));
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

std::string threads_text(const CoreUse& use) {
  const std::string threads = counted(use.threads, "thread");
  return use.ranks == 1 ? threads : fmt::format("{} of {}", counted(use.ranks, "rank"), threads);
}

std::string number_text(double number) {
  return number == std::floor(number) ? fmt::format("{:.0f}", number)
                                      : fmt::format("{:.1f}", number);
}

}  // namespace

std::optional<double> cpu_limit(const std::string& proc, const std::string& sys) {
  std::optional<double> least;
  for (const std::string& folder : control_groups("cpu", proc, sys)) {
    const std::optional<double> limit = cpu_limit_of_group(folder);
    if (limit && (!least || *limit < *least)) least = limit;
  }
  return least;
}

CoreUse look_at_cores(const LaunchInfo& launch, int64_t threads, const std::string& proc,
                      const std::string& sys) {
  CoreUse use;
  use.threads = threads;
  use.ranks = launch.bound ? 1 : launch.local_size;
  use.cores = static_cast<double>(choose_threads(std::nullopt, LaunchInfo{}));
  // A container's limit applies to all its ranks, even if they are bound to cores.
  const std::optional<double> limit = cpu_limit(proc, sys);
  const double own_limit = limit.value_or(0) * static_cast<double>(use.ranks) /
                           static_cast<double>(std::max<int64_t>(1, launch.local_size));
  if (limit) use.cores = std::min(use.cores, own_limit);
  return use;
}

std::vector<std::string> core_warnings(const CoreUse& use) {
  const auto ranks = static_cast<double>(use.ranks), threads = static_cast<double>(use.threads);
  const bool is_crowded = ranks * threads > use.cores + 0.01;
  if (is_crowded && use.threads > 1) {
    const auto fitting = std::max<int64_t>(1, static_cast<int64_t>(use.cores / ranks));
    return {fmt::format(
        "{} on {} {}: threads that wait for each other and for a core make training "
        "many times slower; set run.threads={}",
        threads_text(use), number_text(use.cores), use.cores == 1 ? "core" : "cores", fitting)};
  }
  if (is_crowded || use.core_share >= kLeastCoreShare) return {};
  return {fmt::format(
      "other jobs run on these cores: {} got {:.0f}% of the time that they could have used. "
      "Training "
      "is slower, and its times are not those of a machine of its own{}",
      threads_text(use), 100 * use.core_share,
      use.threads > 1 ? "; run.threads=1 loses less, as threads wait for each other" : "")};
}

}  // namespace shoal
