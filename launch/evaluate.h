#pragma once

#include <cstdint>

#include "launch/recipe.h"
#include "models/task.h"
#include "parallel/rank_grid.h"
#include "runtime/data_source.h"

namespace shoal {

/// Means over a split, each sample counted once.
struct Evaluation {
  double loss = 0.0;
  double top1 = 0.0, top5 = 0.0;  ///< shares, [0, 1]
  int64_t samples = 0;
  double seconds = 0.0;
};

/// Runs the task over all of `data`: dropless, without noise or augmentation. Collective; every
/// rank gets the same numbers. `step` is only told to the layers.
Evaluation evaluate(Task& task, const Recipe& recipe, const SampleSet& data, RankGrid& grid,
                    int64_t step);

}  // namespace shoal
