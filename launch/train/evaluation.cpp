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

/// Sums over this rank's batches.
struct EvalTotals {
  std::vector<NamedSum> sums;
  int64_t samples = 0;
  RouterAgreement::Counts agreement;

  void add(const EvalOutput& output) {
    if (sums.empty()) sums.resize(output.sums.size());
    TORCH_CHECK(sums.size() == output.sums.size(), "a task's evaluation gave ", sums.size(),
                " sums, then ", output.sums.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i].name = output.sums[i].name;
      sums[i].sum += output.sums[i].sum;
      sums[i].weight += output.sums[i].weight;
    }
  }
};

/// One all-reduce.
EvalTotals sum_over_ranks(EvalTotals totals, Communicator& world) {
  std::vector<double> values{static_cast<double>(totals.samples),
                             static_cast<double>(totals.agreement.same),
                             static_cast<double>(totals.agreement.compared)};
  for (const NamedSum& total : totals.sums) {
    values.push_back(total.sum);
    values.push_back(total.weight);
  }
  const torch::Tensor sums = torch::tensor(values, torch::kFloat64);
  all_reduce(world, sums);
  const double* value = sums.const_data_ptr<double>();
  totals.samples = std::llround(value[0]);
  totals.agreement = {std::llround(value[1]), std::llround(value[2])};
  value += 3;
  for (NamedSum& total : totals.sums) {
    total.sum = *value++;
    total.weight = *value++;
  }
  return totals;
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
  EvalTotals own;
  if (agreement != nullptr) agreement->begin_evaluation();
  while (std::optional<Batch> batch = loader.next()) {
    if (interrupted && interrupted()) return std::nullopt;
    batch->context.step = step;
    const EvalOutput output = parts.task.evaluate(*batch);
    own.add(output);
    own.samples += batch->context.sample_b.size(0);
    if (agreement != nullptr) agreement->add(output.moe);
  }
  parts.grid.throw_if_failed();
  if (agreement != nullptr) own.agreement = agreement->counts();
  const EvalTotals all = sum_over_ranks(std::move(own), *parts.grid.world);
  Evaluation result{parts.task.metrics(all.sums), all.samples};
  if (all.agreement.compared > 0) {
    result.router_agreement =
        static_cast<double>(all.agreement.same) / static_cast<double>(all.agreement.compared);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Evaluation evaluate(const EvaluationParts& parts, int64_t step) {
  return *evaluate(parts, step, nullptr, {});
}

}  // namespace shoal
