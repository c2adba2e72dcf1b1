#include "launch/evaluate/baseline_evaluation.h"

#include <nlohmann/json.hpp>

#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/loader/loader.h"

namespace shoal {

void fit_baselines(Baselines& baselines, const EvaluationParts& parts) {
  on_every_rank(*parts.grid.world, [&] {
    const torch::NoGradGuard no_grad;
    const OpenSplit train = open_split(parts.data.source, Split::kTrain, parts.data.workers);
    if (train.samples->size() == 0) {
      throw DataError("data.train has no samples, and baselines are fitted to them",
                      "name files that hold some");
    }
    const auto samples = spread_samples(*train.samples, baselines.most_samples());
    EvalLoader loader(*samples, loader_settings(parts.recipe, train, parts.grid));
    while (const std::optional<Batch> batch = loader.next()) baselines.add(*batch);
  });
  parts.grid.throw_if_failed();
  baselines.fit(*parts.grid.world);
}

std::vector<BaselineScore> evaluate_baselines(const Baselines& baselines,
                                              const EvaluationParts& parts) {
  const torch::NoGradGuard no_grad;
  std::vector<NamedSum> totals;
  EvalLoader loader(*parts.data.samples, loader_settings(parts.recipe, parts.data, parts.grid));
  while (const std::optional<Batch> batch = loader.next()) {
    add_sums(baselines.evaluate(*batch), totals);
  }
  parts.grid.throw_if_failed();
  sum_over_ranks(totals, {}, *parts.grid.world);
  return baselines.scores(totals);
}

nlohmann::ordered_json to_json(const std::vector<BaselineScore>& scores) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const BaselineScore& score : scores) {
    nlohmann::ordered_json& entry = json[score.name];
    add_metrics(score.settings, entry);
    add_metrics(score.metrics, entry);
  }
  return json;
}

std::string to_text(const std::vector<BaselineScore>& scores) {
  std::vector<std::vector<std::string>> rows{{"baseline"}};
  if (!scores.empty()) {
    for (const Metric& metric : scores.front().metrics) rows.front().push_back(metric.label);
  }
  for (const BaselineScore& score : scores) {
    auto& row = rows.emplace_back(std::vector{score.label});
    for (const Metric& metric : score.metrics) row.push_back(to_text(metric));
  }
  return text_table(rows);
}

}  // namespace shoal
