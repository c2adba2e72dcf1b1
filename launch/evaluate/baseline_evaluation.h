#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/evaluate/evaluation.h"
#include "models/task.h"

namespace shoal {

/// Fits what a task compares its model with on samples of data.train as evaluation reads them,
/// without augmentation. Collective. Throws DataError on every rank, and nothing is fitted.
void fit_baselines(Baselines& baselines, const EvaluationParts& parts);

/// Evaluates them on the parts' data; what is not fitted is left out. Collective; every rank gets
/// the same numbers.
std::vector<BaselineScore> evaluate_baselines(const Baselines& baselines,
                                              const EvaluationParts& parts);

/// Each baseline's settings and metrics by its name.
nlohmann::ordered_json to_json(const std::vector<BaselineScore>& scores);
/// A row a baseline, a column a metric.
std::string to_text(const std::vector<BaselineScore>& scores);

}  // namespace shoal
