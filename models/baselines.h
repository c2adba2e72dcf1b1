#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/task.h"
#include "parallel/comm/communicator.h"
#include "runtime/data/batch.h"

namespace shoal {

/// Results of one baseline.
struct BaselineScore {
  std::string name;              ///< in JSON
  std::string label;             ///< for people
  std::vector<Metric> settings;  ///< values chosen or counted while fitting it
  std::vector<Metric> metrics;   ///< with the same names in all baselines of a task
};

/// Simple predictors to compare a task's model with in an evaluation, on the same samples. Some are
/// first fitted on training samples.
class Baselines {
 public:
  virtual ~Baselines() = default;
  /// Largest number of training samples needed to fit.
  virtual int64_t most_samples() const = 0;
  /// Adds training samples of this rank, b may be 0.
  virtual void add(const Batch& batch) = 0;
  /// Fits on the samples that all ranks have added. Collective. Without it, fitted baselines are
  /// left out. TORCH_CHECK that there are samples.
  virtual void fit(Communicator& world) = 0;
  /// Sums over this rank's samples, as Task::evaluate returns them.
  virtual std::vector<NamedSum> evaluate(const Batch& batch) const = 0;
  /// Scores from the sums over a whole split.
  virtual std::vector<BaselineScore> scores(const std::vector<NamedSum>& totals) const = 0;
  /// Sentences on baselines that every evaluation of these data leaves out, and why.
  virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace shoal
