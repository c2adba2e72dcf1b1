#include "launch/train/mfu.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "launch/machine/machine_facts.h"
#include "launch/machine/peak_rate.h"
#include "parallel/comm/communicator.h"

namespace shoal {
namespace {

/// The least share that a rank of this machine has. Collective.
double least_share_here(double own, Communicator& world) {
  const std::string host = host_name() + " ";
  double least = own;
  for (const std::string& text : gather_text(world, host + std::to_string(own))) {
    if (text.starts_with(host)) least = std::min(least, std::stod(text.substr(host.size())));
  }
  return least;
}

/// Products of this rank, timed on all ranks at once, which shows where they share cores, but not
/// on GPUs. The first rank of each machine warns of crowded cores and of other jobs. Collective.
TimedProducts time_cores(const Recipe& recipe, const LaunchInfo& launch, const RankGrid& grid,
                         Log& log) {
  CoreUse use = look_at_cores(launch, at::get_num_threads());
  TimedProducts timed;
  if (!grid.device.is_cuda()) {
    gather_text(*grid.world, "");  // all ranks begin
    timed = time_products(compute_dtype_of(recipe));
    use.core_share = least_share_here(timed.core_share, *grid.world);
  }
  if (launch.local_rank == 0) {
    for (const std::string& warning : core_warnings(use)) log.warn(warning);
  }
  return timed;
}

}  // namespace

std::optional<MfuBasis> mfu_basis(const CheckedRecipe& checked, const LaunchInfo& launch,
                                  const Session& session, Log& log) {
  if (session.steps_done() >= session.total_steps()) return std::nullopt;
  const Recipe& recipe = checked.loaded.options;
  const RankGrid& grid = session.grid();
  const TimedProducts timed = time_cores(recipe, launch, grid, log);
  const PeakRate own = peak_rate(grid.device, compute_dtype_of(recipe), recipe.run.peak_tflops,
                                 timed, recipe.run.tf32);
  const bool is_known = own.flops_per_second > 0;
  const torch::Tensor sums =
      torch::tensor({own.flops_per_second, is_known ? 0.0 : 1.0}, torch::kFloat64);
  all_reduce(*grid.world, sums, ReduceOp::kSum);
  const double flops = sums[0].item<double>();
  const std::optional<ModelWork>& work = checked.counts.work;
  std::string lack;
  if (!work || work->training_flops == 0) {
    lack = "the FLOPs of this model are not counted";
  } else if (sums[1].item<double>() > 0) {
    lack =
        (is_known
             ? "the peak of another rank is not known (its cores are shared, or its GPU is unknown)"
             : own.source) +
        "; set run.peak_tflops";
  }
  if (!lack.empty()) {
    log.info("mfu: not reported, as " + lack);
    return std::nullopt;
  }
  log.info(fmt::format(
      "mfu is relative to {:.3g} TFLOP/s per rank ({}, {}); training takes {:.4g} GFLOP "
      "per sample",
      flops / 1e12 / static_cast<double>(grid.world->size()), own.source,
      enum_name(recipe.train.precision), work->training_flops / 1e9));
  return MfuBasis{*work, flops / work->training_flops};
}

void ComputedWork::add(const std::vector<MoeStats>& step) {
  ++num_new_;
  if (!work_.routed_training_flops.empty()) shoal::add(choices_, step);
}

double ComputedWork::take_share() {
  double dropped_flops = 0.0;
  if (!choices_.empty()) {
    const torch::Tensor no_numbers = torch::zeros({0}, torch::kFloat64);
    for (const MoeReport& layer : reduce(no_numbers, choices_, world_).layers) {
      const auto routed = work_.routed_training_flops.find(layer.layer);
      if (routed == work_.routed_training_flops.end()) continue;
      dropped_flops += routed->second * layer.dropped;
    }
  }
  const double share = 1.0 - dropped_flops / work_.training_flops;
  steps_ += static_cast<double>(num_new_) * share;
  num_new_ = 0;
  choices_.clear();
  return share;
}

}  // namespace shoal
