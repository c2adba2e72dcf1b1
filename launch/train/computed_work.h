#pragma once

#include <cstdint>
#include <vector>

#include "launch/model/model_work.h"
#include "moe/moe_stats.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Counts how much of a model's training FLOPs the steps of a run computed, for model FLOPs
/// utilisation (MFU): routed units compute no dropped choices.
class ComputedWork {
 public:
  /// `work` and `world` outlive this.
  ComputedWork(const ModelWork& work, Communicator& world) : work_(work), world_(world) {}

  /// Adds a step's statistics of this rank. Waits for nothing.
  void add(const std::vector<MoeStats>& step);
  /// The share of ModelWork::training_flops that the steps since the last call computed, 1 without
  /// steps. Collective; waits for the GPU if the model has routed units.
  double take_share();
  /// The number of steps up to the last take_share(), each counted by its share.
  double steps() const { return steps_; }

 private:
  const ModelWork& work_;
  Communicator& world_;
  std::vector<MoeStats> choices_;  ///< choices since the last take_share()
  int64_t num_new_ = 0;            ///< steps since then
  double steps_ = 0.0;
};

}  // namespace shoal
