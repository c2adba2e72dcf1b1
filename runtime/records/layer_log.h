#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/records/metrics.h"

namespace shoal {

/// Metrics of one kind of layer, such as token gates, logged beside the metrics of every step.
class LayerLog {
 public:
  /// The metrics of one step.
  struct Report {
    std::vector<MetricsRecord> records = {};  ///< lines of the file, one a layer
    MetricsRecord means = {};                 ///< keys of metrics.jsonl
    std::string shown = {};                   ///< on the console: `attend 41.2%`
  };

  virtual ~LayerLog() = default;
  /// The file of the records in a run's folder, `gates.jsonl`; "" without records.
  virtual std::string file() const = 0;
  /// `applied`: false after a step that was skipped.
  virtual Report report(int64_t step, bool applied) const = 0;
};
using LayerLogs = std::vector<std::shared_ptr<const LayerLog>>;

}  // namespace shoal
