#include "launch/model/score_rule.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {

void add_set_metrics(const std::string& name, const std::vector<Metric>& metrics, int64_t samples,
                     std::vector<Metric>& all) {
  for (const auto& [metric, value, kind, label] : metrics) {
    all.push_back({name + "." + metric, value, kind, name + " " + label});
  }
  const auto count = static_cast<double>(samples);
  all.push_back({name + ".samples", count, Metric::Kind::kCount, name + " samples"});
}

std::vector<Metric> evaluated_metrics(const Task& task, const EvaluateOptions& options) {
  const std::vector<Metric> own = task.metrics({});
  std::vector<Metric> all = own;
  for (const auto& set : options.sets) add_set_metrics(set.name, own, 0, all);
  return all;
}

ScoreRule score_rule(const Task& task, const EvaluateOptions& options) {
  if (!options.score) return task.score();
  std::vector<std::string> names;
  for (const Metric& metric : evaluated_metrics(task, options)) {
    if (metric.kind == Metric::Kind::kCount) continue;
    if (metric.name == *options.score) return {metric.name, metric.kind != Metric::Kind::kLoss};
    names.push_back(metric.name);
  }
  throw ConfigError(fmt::format("evaluate.score: no metric is called '{}'{}; one of: {}",
                                *options.score, did_you_mean(*options.score, names),
                                join_words(names)));
}

}  // namespace shoal
