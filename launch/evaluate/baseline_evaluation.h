#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/evaluate/evaluation.h"
#include "models/task.h"

namespace shoal {

/// Fits a task's baselines (simple predictors to compare the model with) on samples of the training
/// split, data.train. Opens this split from `parts.data.source` and reads it without augmentation.
/// Collective. Throws DataError on every rank, and fits nothing, if it cannot be read or is empty.
void fit_baselines(Baselines& baselines, const EvaluationParts& parts);

/// Evaluates the baselines on the split `parts.data`, with the `parts` of fit_baselines. Leaves out
/// baselines that need fitting and are not fitted. Collective; every rank gets the same numbers.
std::vector<BaselineScore> evaluate_baselines(const Baselines& baselines,
                                              const EvaluationParts& parts);

/// Settings and metrics of each baseline, by the baseline's name.
nlohmann::ordered_json to_json(const std::vector<BaselineScore>& scores);
/// A table with a row per baseline and a column per metric.
std::string to_text(const std::vector<BaselineScore>& scores);

}  // namespace shoal
