#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/evaluate/evaluation.h"
#include "models/task.h"

namespace shoal {

/// Fits a task's baselines (simple predictors to compare the model with) on samples of data.train
/// without augmentation. Collective. If data.train cannot be read, throws DataError on every rank
/// and fits nothing.
void fit_baselines(Baselines& baselines, const EvaluationParts& parts);

/// Evaluates the baselines on the split `parts.data`. Leaves out baselines that need fitting and
/// that fit_baselines has not fitted. Collective; every rank gets the same numbers.
std::vector<BaselineScore> evaluate_baselines(const Baselines& baselines,
                                              const EvaluationParts& parts);

/// Settings and metrics of each baseline, by the baseline's name.
nlohmann::ordered_json to_json(const std::vector<BaselineScore>& scores);
/// A table with a row per baseline and a column per metric.
std::string to_text(const std::vector<BaselineScore>& scores);

}  // namespace shoal
