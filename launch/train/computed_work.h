#pragma once

#include <cstdint>
#include <vector>

#include "launch/model/model_work.h"
#include "moe/moe_stats.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// How much of a model's training FLOPs the steps of a run computed: routed units compute no
/// dropped choices. For model FLOPs utilisation (MFU).
class ComputedWork {
 public:
  /// Both outlive this.
  ComputedWork(const ModelWork& work, Communicator& world) : work_(work), world_(world) {}

  /// A step's statistics of this rank. Waits for nothing.
  void add(const std::vector<MoeStats>& step);
  /// The share of ModelWork::training_flops that the steps since the last call computed, 1 without
  /// steps. Collective; waits for the GPU if the model has routed units.
  double take_share();
  /// All steps up to the last take_share(), each counted by its share.
  double steps() const { return steps_; }

 private:
  const ModelWork& work_;
  Communicator& world_;
  std::vector<MoeStats> choices_;  ///< since the last take_share()
  int64_t num_new_ = 0;            ///< steps since then
  double steps_ = 0.0;
};

}  // namespace shoal
