#include "launch/train/evaluation.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/metrics.h"
#include "runtime/data/loader.h"

namespace shoal {
namespace {

void add(const std::vector<NamedSum>& batch, std::vector<NamedSum>& totals) {
  if (totals.empty()) totals.resize(batch.size());
  TORCH_CHECK(totals.size() == batch.size(), "a task's evaluation gave ", totals.size(),
              " sums, then ", batch.size());
  for (size_t i = 0; i < totals.size(); ++i) {
    totals[i].name = batch[i].name;
    totals[i].sum += batch[i].sum;
    totals[i].weight += batch[i].weight;
  }
}

/// One all-reduce.
void sum_over_ranks(std::vector<NamedSum>& totals, Communicator& world) {
  std::vector<double> values;
  for (const NamedSum& total : totals) values.insert(values.end(), {total.sum, total.weight});
  const torch::Tensor sums = torch::tensor(values, torch::kFloat64);
  all_reduce(world, sums);
  const double* value = sums.const_data_ptr<double>();
  for (NamedSum& total : totals) {
    total.sum = *value++;
    total.weight = *value++;
  }
}

}  // namespace

double Evaluation::value(std::string_view name) const {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  TORCH_CHECK(false, "the task reports no metric '", std::string(name), "'");
}

std::string to_text(const Metric& metric) {
  const double value = without_sign_if_nan(metric.value);
  switch (metric.kind) {
    case Metric::Kind::kShare:
      return fmt::format("{:.2f}%", 100 * value);
    case Metric::Kind::kCount:
      return fmt::format("{:.0f}", value);
    default:
      return fmt::format("{:.4f}", value);
  }
}

nlohmann::ordered_json to_json(const Evaluation& evaluation) {
  nlohmann::ordered_json json;
  for (const Metric& metric : evaluation.metrics) {
    if (metric.kind == Metric::Kind::kCount) {
      json[metric.name] = std::llround(metric.value);
    } else {
      json[metric.name] = metric.value;
    }
  }
  json["samples"] = evaluation.samples;
  return json;
}

std::optional<Evaluation> evaluate(const EvaluationParts& parts, int64_t step,
                                   RouterAgreement* agreement, const Interrupted& interrupted) {
  const auto start = std::chrono::steady_clock::now();
  const torch::NoGradGuard no_grad;
  EvalLoader loader(*parts.data.samples, loader_settings(parts.recipe, parts.data, parts.grid));
  std::vector<NamedSum> totals;
  int64_t samples = 0;
  if (agreement != nullptr) agreement->begin_evaluation();
  while (std::optional<Batch> batch = loader.next()) {
    if (interrupted && interrupted()) return std::nullopt;
    batch->context.step = step;
    const EvalOutput output = parts.task.evaluate(*batch);
    add(output.sums, totals);
    samples += batch->context.sample_b.size(0);
    if (agreement != nullptr) agreement->add(output.moe);
  }
  parts.grid.throw_if_failed();
  const RouterAgreement::Counts own =
      agreement != nullptr ? agreement->counts() : RouterAgreement::Counts{};
  // Summed along with the task's, then taken off again.
  totals.push_back({"samples", static_cast<double>(samples)});
  totals.push_back({"agreement", static_cast<double>(own.same), static_cast<double>(own.compared)});
  sum_over_ranks(totals, *parts.grid.world);
  const NamedSum same = totals.back();
  totals.pop_back();
  samples = std::llround(totals.back().sum);
  totals.pop_back();
  Evaluation result{parts.task.metrics(totals), samples};
  if (same.weight > 0) result.router_agreement = same.sum / same.weight;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Evaluation evaluate(const EvaluationParts& parts, int64_t step) {
  return *evaluate(parts, step, nullptr, {});
}

}  // namespace shoal
