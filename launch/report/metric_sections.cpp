#include <fmt/format.h>

#include <algorithm>

#include "launch/report/figures.h"
#include "launch/report/known_metrics.h"
#include "launch/report/sections.h"

namespace shoal {
namespace {

/// Curves of one metric in all runs that have it.
struct RunMetric {
  std::string key;
  MetricInfo info;
  std::vector<FigureLine> lines = {};
};

/// The metrics of `set` of all runs, in the order in which they first appear.
std::vector<RunMetric> metrics_of(const Report& report, CurveSet RunData::*set) {
  std::vector<RunMetric> metrics;
  for (size_t r = 0; r < report.runs.size(); ++r) {
    for (const Curve& curve : (report.runs[r].*set).curves()) {
      if (curve.num_finite() == 0) continue;
      auto metric = std::ranges::find(metrics, curve.key(), &RunMetric::key);
      if (metric == metrics.end()) {
        metric = metrics.insert(metric, {curve.key(), metric_info(curve.key())});
      }
      metric->lines.push_back({report.is_comparison() ? report.runs[r].name : "", &curve, r});
    }
  }
  return metrics;
}

bool is_constant(const RunMetric& metric) {
  const double value = metric.lines.front().curve->last().value;
  return std::ranges::all_of(metric.lines, [value](const FigureLine& line) {
    return line.curve->is_constant() && line.curve->last().value == value;
  });
}

/// Adds figures of the metrics, then a sentence that lists constant ones.
void add_figures(const Report& report, const std::vector<RunMetric>& metrics) {
  std::string constants;
  for (const RunMetric& metric : metrics) {
    const MetricInfo& info = metric.info;
    if (info.is_shown_constant || !is_constant(metric)) {
      add_curves(report.page, {info.label, info.quantity, metric.lines, /*is_by_run=*/true},
                 report.most_points);
      continue;
    }
    constants += fmt::format("{}{} {}", constants.empty() ? "" : "; ", info.label,
                             value_text(metric.lines.front().curve->last().value, info.quantity));
  }
  if (!constants.empty()) {
    report.page.add({{"paragraph", fmt::format("The same throughout: {}.", constants)}});
  }
}

/// Adds the validation loss of each run to the training loss, behind the run's line.
void add_validation(const Report& report, RunMetric& loss) {
  std::vector<FigureLine> lines;
  for (FigureLine& line : loss.lines) {
    if (line.name.empty()) line.name = "training";
    lines.push_back(line);
    const RunData& run = report.runs[line.run];
    const Curve* validation = run.evaluations.find("loss");
    if (validation == nullptr || validation->num_finite() == 0) continue;
    lines.push_back({report.is_comparison() ? run.name + ", validation" : "validation", validation,
                     line.run, /*is_evaluation=*/true});
  }
  loss.lines = lines;
}

void add_evaluations(const Report& report, bool has_loss) {
  std::vector<RunMetric> metrics = metrics_of(report, &RunData::evaluations);
  std::erase_if(metrics, [&](const RunMetric& metric) {
    const bool is_count = metric.lines.front().curve->is_count();
    return (has_loss && metric.key == "loss") || (is_count && is_constant(metric));
  });
  for (RunMetric& metric : metrics) {
    metric.info.is_shown_constant = true;
    if (metric.key == "loss") metric.info.label = "validation loss";
    if (metric.key == "seconds") metric.info.label = "duration of the evaluation, s";
    for (FigureLine& line : metric.lines) line.is_evaluation = true;
  }
  report.page.begin_section("evaluations", "Evaluations");
  add_figures(report, metrics);
}

}  // namespace

void add_metrics(const Report& report) {
  std::vector<RunMetric> metrics = metrics_of(report, &RunData::steps);
  std::erase_if(metrics, [](const RunMetric& metric) {
    return metric.key == "samples" || metric.key == "hours";  // the steps, in other units
  });
  const auto loss = std::ranges::find(metrics, "loss", &RunMetric::key);
  const bool has_loss = loss != metrics.end();
  if (has_loss) add_validation(report, *loss);
  const auto add_section = [&](MetricGroup group, const char* id, const char* heading) {
    std::vector<RunMetric> own;
    std::ranges::copy_if(metrics, std::back_inserter(own),
                         [group](const RunMetric& metric) { return metric.info.group == group; });
    report.page.begin_section(id, heading);
    add_figures(report, own);
  };
  add_section(MetricGroup::kTraining, "training", "Training");
  add_evaluations(report, has_loss);
  add_pictures(report);
  add_layer_norms(report);
  add_section(MetricGroup::kSpeed, "speed", "Speed and memory");
  add_section(MetricGroup::kExperts, "experts", "Experts and routing");
  add_expert_layers(report);
  add_section(MetricGroup::kGates, "gates", "Token gates");
  add_gate_layers(report);
  add_section(MetricGroup::kSparsity, "sparsity", "Masks and permutations");
  add_permutation_layers(report);
  add_section(MetricGroup::kOther, "other", "Other numbers");
}

}  // namespace shoal
