#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/evaluate/evaluation.h"
#include "models/baselines.h"

namespace shoal {

/// Fits a task's baselines on samples of data.train, loaded as for evaluation, without
/// augmentation. Collective. On failure fits nothing and throws DataError on every rank.
void fit_baselines(Baselines& baselines, const EvaluationParts& parts);

/// Evaluates the baselines on the parts' data, without those that are not fitted. Collective; every
/// rank gets the same numbers.
std::vector<BaselineScore> evaluate_baselines(const Baselines& baselines,
                                              const EvaluationParts& parts);

/// Settings and metrics by the baseline's name.
nlohmann::ordered_json to_json(const std::vector<BaselineScore>& scores);
/// Table with a row for each baseline and a column for each metric.
std::string to_text(const std::vector<BaselineScore>& scores);

}  // namespace shoal
