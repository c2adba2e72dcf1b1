#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/task.h"
#include "parallel/comm/communicator.h"
#include "runtime/data/batch.h"

namespace shoal {

/// What one baseline reaches.
struct BaselineScore {
  std::string name;              ///< in JSON
  std::string label;             ///< for people
  std::vector<Metric> settings;  ///< numbers that were chosen or counted while fitting it
  std::vector<Metric> metrics;   ///< of the same names in all baselines of a task
};

/// Simple predictors that an evaluation compares a task's model with, on the same samples. Some are
/// fitted on training samples first.
class Baselines {
 public:
  virtual ~Baselines() = default;
  /// Training samples that are enough to fit on.
  virtual int64_t most_samples() const = 0;
  /// Training samples of this rank, b may be 0.
  virtual void add(const Batch& batch) = 0;
  /// Fits on what all ranks have added. Collective. Without it, baselines that are fitted are left
  /// out. TORCH_CHECK that there are samples.
  virtual void fit(Communicator& world) = 0;
  /// As Task::evaluate.
  virtual std::vector<NamedSum> evaluate(const Batch& batch) const = 0;
  /// Of the sums over a whole split.
  virtual std::vector<BaselineScore> scores(const std::vector<NamedSum>& totals) const = 0;
  /// Which are left out of every evaluation of these data, and why; sentences.
  virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace shoal
