#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "moe/moe_stats.h"
#include "parallel/comm/communicator.h"
#include "parallel/gradients/step_control.h"

namespace shoal {

/// What one optimizer step did on this rank. reduce() adds up what ranks share.
struct StepOutcome {
  bool applied = true;     ///< false: skipped, since the loss or some gradient was not finite
  std::string not_finite;  ///< what made the step be skipped: `the loss`, `the gradient of X`
  double lr = 0.0;
  /// L2 norm of the gradients of all ranks, whatever train.clip_norm_type, before clipping; each
  /// parameter counts once.
  double grad_norm = 0.0;
  torch::Tensor loss;  ///< float64 scalar, this rank's share, where the model is
  std::vector<MoeStats> moe;
  double data_wait_seconds = 0.0;
  StepFlags agreed;
};

/// Loss and expert statistics of a step over all ranks.
struct StepReport {
  double loss = 0.0;
  std::vector<MoeReport> moe;
  /// Share of the model's training FLOPs that was computed since the last report: dropped choices
  /// were not (ComputedWork).
  double computed_share = 1.0;
};

/// Collective: one all-reduce. Waits for the GPU.
StepReport reduce(const StepOutcome& outcome, Communicator& world);

}  // namespace shoal
