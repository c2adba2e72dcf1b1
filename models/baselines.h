#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/task.h"
#include "parallel/comm/communicator.h"
#include "runtime/data/batch.h"

namespace shoal {

/// The metrics of one baseline.
struct BaselineScore {
  std::string name;              ///< key in JSON
  std::string label;             ///< printed name
  std::vector<Metric> settings;  ///< values chosen or counted during fitting
  std::vector<Metric> metrics;   ///< with equal names for all baselines of a task
};

/// Simple predictors that are evaluated on the same samples as the model, for comparison. Some are
/// fitted on training samples first.
class Baselines {
 public:
  virtual ~Baselines() = default;
  /// Number of training samples that suffice for fitting.
  virtual int64_t most_samples() const = 0;
  /// Adds training samples of this rank to fit on; b may be 0.
  virtual void add(const Batch& batch) = 0;
  /// Fits on the samples added on all ranks. Collective. If it is not called, evaluation leaves
  /// fitted baselines out. TORCH_CHECK that samples were added.
  virtual void fit(Communicator& world) = 0;
  /// Sums over this rank's samples, as Task::evaluate returns them.
  virtual std::vector<NamedSum> evaluate(const Batch& batch) const = 0;
  /// Scores from the sums over a whole split.
  virtual std::vector<BaselineScore> scores(const std::vector<NamedSum>& totals) const = 0;
  /// One sentence for each baseline that cannot be evaluated on these data, with the reason.
  virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace shoal
