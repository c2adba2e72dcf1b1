#include <algorithm>

#include "launch/report/sections.h"

namespace shoal {
namespace {

/// The metrics of `set` of all runs, in the order in which they first appear.
std::vector<CurveFigure> metrics_of(const Report& report, CurveSet RunData::*set) {
  std::vector<CurveFigure> metrics;
  for (size_t r = 0; r < report.runs.size(); ++r) {
    const std::string name = report.is_comparison() ? report.runs[r].name : "";
    for (const Curve& curve : (report.runs[r].*set).curves()) add_line(metrics, {name, &curve, r});
  }
  for (CurveFigure& metric : metrics) metric.is_by_run = true;
  return metrics;
}

/// Adds the validation loss of each run to the training loss, behind the run's line.
void add_validation(const Report& report, CurveFigure& loss) {
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
  std::vector<CurveFigure> metrics = metrics_of(report, &RunData::evaluations);
  std::erase_if(metrics, [&](const CurveFigure& metric) {
    const bool is_count = metric.lines.front().curve->is_count();
    return (has_loss && metric.key == "loss") || (is_count && metric.is_constant());
  });
  for (CurveFigure& metric : metrics) {
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
  std::vector<CurveFigure> metrics = metrics_of(report, &RunData::steps);
  std::erase_if(metrics, [](const CurveFigure& metric) {
    return metric.key == "samples" || metric.key == "hours";  // the steps, in other units
  });
  const auto loss = std::ranges::find(metrics, "loss", &CurveFigure::key);
  const bool has_loss = loss != metrics.end();
  if (has_loss) add_validation(report, *loss);
  const auto add_section = [&](MetricGroup group, const char* id, const char* heading) {
    std::vector<CurveFigure> own;
    std::ranges::copy_if(metrics, std::back_inserter(own),
                         [group](const CurveFigure& metric) { return metric.info.group == group; });
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
