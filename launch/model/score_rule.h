#pragma once

#include <string>
#include <vector>

#include "launch/recipe/recipe.h"
#include "models/task.h"

namespace shoal {

/// Appends the metrics of an evaluation of one of evaluate.sets, named NAME.METRIC, and the number
/// of its samples, NAME.samples.
void add_set_metrics(const std::string& name, const std::vector<Metric>& metrics, int64_t samples,
                     std::vector<Metric>& all);

/// All metrics that the evaluations of a training may report, without values.
std::vector<Metric> evaluated_metrics(const Task& task, const EvaluateOptions& options);

/// The metric that selects the best checkpoint: evaluate.score, or else the task's own. A loss is
/// the better the lower, other metrics the higher. Throws ConfigError for an unknown metric.
ScoreRule score_rule(const Task& task, const EvaluateOptions& options);

}  // namespace shoal
