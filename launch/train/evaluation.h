#pragma once

#include <cstdint>
#include <optional>

#include "launch/job/recipe.h"
#include "launch/train/router_agreement.h"
#include "models/task.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// Means over a split, each sample counted once.
struct Evaluation {
  double loss = 0.0;
  double top1 = 0.0, top5 = 0.0;  ///< shares, [0, 1]
  int64_t samples = 0;
  /// Share of the tokens, over all MoE layers, that keep their first unit since the evaluation
  /// before; unset where there is nothing to compare.
  std::optional<double> router_agreement = {};
  double seconds = 0.0;
};

/// What is evaluated, by which recipe, on what data and ranks; all outlive the call.
struct EvaluationParts {
  Task& task;
  const Recipe& recipe;
  const SampleSet& data;
  RankGrid& grid;
};

/// Runs the task over all of the data: dropless, without noise or augmentation. Collective; every
/// rank gets the same numbers. `step` is only told to the layers; `agreement` keeps what the next
/// evaluation is compared with, on all ranks or on none.
Evaluation evaluate(const EvaluationParts& parts, int64_t step,
                    RouterAgreement* agreement = nullptr);

}  // namespace shoal
