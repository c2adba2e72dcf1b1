#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "moe/moe_stats.h"
#include "runtime/records/event_file.h"
#include "runtime/records/metrics.h"

namespace shoal {

/// Converts a training's logged values to events for TensorBoard.
///
/// Numbers of a logged step are `train/KEY`, numbers of an evaluation `evaluate/KEY`, with the keys
/// of metrics.jsonl. For each MoE layer `experts/LAYER/load` is a histogram over its units
/// (experts, memory units) of the load over the layer's mean, beside the numbers
/// `load_max_over_mean`, `load_entropy`, `dead_experts` and `dropped`. `experts/load` is a picture
/// at each evaluation and at the end: the loads of steps logged since the previous picture.
class TensorBoardEvents {
 public:
  /// Layers beyond this number have no histogram and no values of their own, which bounds the
  /// number of tags. Pictures show all layers.
  static constexpr size_t kMostLayers = 32;

  StepEvent step(int64_t step, const MetricsRecord& record, const std::vector<MoeReport>& moe);
  StepEvent evaluation(int64_t step, const MetricsRecord& record);
  /// Returns the final picture, of loads logged since the previous one; nullopt without any.
  std::optional<StepEvent> rest();

 private:
  void add_picture(EventSummary& summary);

  int64_t last_step_ = 0;
  std::vector<std::vector<double>> load_;  ///< each layer's, since the last picture
};

}  // namespace shoal
