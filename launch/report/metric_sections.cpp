#include <fmt/format.h>

#include <algorithm>

#include "launch/pages/page.h"
#include "launch/report/curve_figure.h"
#include "launch/report/known_metrics.h"
#include "launch/report/sections.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// Curves of one metric in all runs that have it.
struct MetricFigure {
  MetricInfo info;
  std::vector<FigureLine> lines;
};

/// Figures of the curves in `set` of each run, in the order in which keys first appear.
std::vector<MetricFigure> metrics_of(const Runs& runs, CurveSet RunData::*set) {
  std::vector<MetricFigure> metrics;
  std::vector<std::string> keys;
  for (size_t r = 0; r < runs.size(); ++r) {
    for (const Curve& curve : (runs[r].*set).curves()) {
      if (curve.num_finite() == 0) continue;
      auto place = static_cast<size_t>(std::ranges::find(keys, curve.key()) - keys.begin());
      if (place == keys.size()) {
        keys.push_back(curve.key());
        metrics.push_back({metric_info(curve.key()), {}});
      }
      metrics[place].lines.push_back({runs[r].name, &curve, r});
    }
  }
  return metrics;
}

bool is_constant(const MetricFigure& metric) {
  const double value = metric.lines.front().curve->last().value;
  return std::ranges::all_of(metric.lines, [value](const FigureLine& line) {
    return line.curve->is_constant() && line.curve->last().value == value;
  });
}

std::string numbers_table(const std::vector<MetricFigure>& metrics, const Runs& runs,
                          const std::string& heading) {
  std::string rows;
  for (const MetricFigure& metric : metrics) {
    for (const FigureLine& line : metric.lines) {
      const Curve& curve = *line.curve;
      const auto cell = [&](const Curve::Point& point) {
        return fmt::format("{} <small>at {}</small>", value_text(point.value, metric.info.quantity),
                           grouped(point.step));
      };
      const std::string name = metric.info.label + (runs.size() > 1 ? ", " + line.label : "");
      rows += page_row(xml_text(name),
                       {grouped(curve.num_finite()), cell(curve.first()), cell(curve.lowest()),
                        cell(curve.highest()), cell(curve.last())});
    }
  }
  return fmt::format("<details><summary>{0} in numbers</summary>\n{1}</details>\n", heading,
                     page_table(heading + ", each value at its step",
                                {"number", "values", "first", "lowest", "highest", "last"}, rows));
}

/// Figures of the metrics, then a sentence that lists constant ones.
std::string figures_html(const std::vector<MetricFigure>& metrics, const Runs& runs,
                         const std::string& heading, FigureIds& ids) {
  std::string figures, constants;
  for (const MetricFigure& metric : metrics) {
    if (!metric.info.is_shown_constant && is_constant(metric)) {
      constants +=
          fmt::format("{}{} {}", constants.empty() ? "" : "; ", xml_text(metric.info.label),
                      value_text(metric.lines.front().curve->last().value, metric.info.quantity));
      continue;
    }
    const std::vector<double> marks =
        runs.size() == 1 ? resumed_steps(runs.front()) : std::vector<double>{};
    figures += curve_figure_html(
        {metric.info.label, metric.info.quantity, metric.lines, marks, last_step_of(runs)},
        ids.next());
  }
  std::string html = plots_html(figures);
  if (!constants.empty()) html += fmt::format("<p>The same throughout: {}.</p>\n", constants);
  return html.empty() ? "" : html + numbers_table(metrics, runs, heading);
}

/// Explains how to read the curves, as far as needed for these runs.
std::string reading_help(const Runs& runs) {
  const bool has_means = std::ranges::any_of(runs, [&](const RunData& run) {
    const Curve* loss = run.steps.find("loss");
    return loss != nullptr && has_range(*loss, runs.size());
  });
  const bool has_marks = runs.size() == 1 && !resumed_steps(runs.front()).empty();
  std::string text;
  if (has_means) text += "Lines are means over neighbouring steps, bands their range. ";
  if (has_marks) text += "A dashed vertical line marks a resume. ";
  return text.empty() ? "" : fmt::format("<p class=\"hint\">{}</p>\n", text);
}

Section evaluation_section(const Runs& runs, FigureIds& ids) {
  std::vector<MetricFigure> metrics = metrics_of(runs, &RunData::evaluations);
  std::erase_if(metrics, [](const MetricFigure& metric) {
    return metric.lines.front().curve->is_count() && is_constant(metric);
  });
  for (MetricFigure& metric : metrics) {
    const std::string& key = metric.lines.front().curve->key();
    metric.info.is_shown_constant = true;
    if (key == "loss") metric.info.label = "validation loss";
    if (key == "seconds") metric.info.label = "duration of the evaluation, s";
  }
  return {"evaluations", "Evaluations", figures_html(metrics, runs, "Evaluations", ids)};
}

}  // namespace

std::string with_heading(const RunData& run, const Runs& runs, const std::string& html) {
  if (html.empty() || runs.size() == 1) return html;
  return fmt::format("<h3>{}</h3>\n{}", xml_text(run.name), html);
}

std::string plots_html(const std::string& figures) {
  return figures.empty() ? "" : "<div class=\"plots\">\n" + figures + "</div>\n";
}

std::vector<Section> metric_sections(const Runs& runs, FigureIds& ids) {
  std::vector<MetricFigure> metrics = metrics_of(runs, &RunData::steps);
  std::erase_if(metrics, [](const MetricFigure& metric) {
    return metric.lines.front().curve->key() == "samples";  // the steps, in another unit
  });
  const auto section = [&](MetricGroup group, const char* id, const char* heading) {
    std::vector<MetricFigure> own;
    std::ranges::copy_if(metrics, std::back_inserter(own), [group](const MetricFigure& metric) {
      return metric.info.group == group;
    });
    return Section{id, heading, figures_html(own, runs, heading, ids)};
  };
  std::vector<Section> sections;
  sections.push_back(section(MetricGroup::kTraining, "training", "Training"));
  Section& training = sections.back();
  if (!training.body.empty()) training.body = reading_help(runs) + training.body;
  sections.push_back(evaluation_section(runs, ids));
  sections.push_back(pictures_section(runs));
  sections.push_back(section(MetricGroup::kSpeed, "speed", "Speed and memory"));
  sections.push_back(section(MetricGroup::kExperts, "experts", "Experts and routing"));
  sections.back().body += expert_layers_html(runs, ids);
  sections.push_back(section(MetricGroup::kGates, "gates", "Token gates"));
  sections.back().body += gate_layers_html(runs, ids);
  sections.push_back(section(MetricGroup::kSparsity, "sparsity", "Masks and permutations"));
  sections.back().body += permutation_layers_html(runs, ids);
  sections.push_back(section(MetricGroup::kOther, "other", "Other numbers"));
  return sections;
}

}  // namespace shoal
