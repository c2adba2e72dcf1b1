#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/records/metrics.h"

namespace shoal {

/// Metrics of one kind of layer (sparse layers, say), logged beside the metrics of every step.
class LayerLog {
 public:
  /// The metrics of one step.
  struct Report {
    std::vector<MetricsRecord> records = {};  ///< lines for file(), one per layer
    MetricsRecord means = {};                 ///< added to the step's line in metrics.jsonl
    std::string shown = {};                   ///< words for the console, `attend 41.2%`
  };

  virtual ~LayerLog() = default;
  /// Name of the file for the records in the run's folder, `gates.jsonl`; "" without records.
  virtual std::string file() const = 0;
  /// `step`: number of steps done. `applied`: false if the optimizer skipped the last step.
  virtual Report report(int64_t step, bool applied) const = 0;
};
using LayerLogs = std::vector<std::shared_ptr<const LayerLog>>;

}  // namespace shoal
