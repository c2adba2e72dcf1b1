#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launch/pages/load_panel.h"
#include "launch/pages/page.h"
#include "launch/report/curve_figure.h"
#include "launch/report/heat_figure.h"
#include "launch/report/known_metrics.h"
#include "launch/report/sections.h"
#include "launch/report/step_axis.h"

namespace shoal {
namespace {

constexpr size_t kMostHeatFigures = 64;

/// The last step logged by these layers or by the run.
double last_step_of_layers(const RunData& run, const std::vector<LayerRecords>& layers) {
  double last = run.last_step;
  for (const LayerRecords& layer : layers) {
    for (const Curve& curve : layer.numbers.curves()) {
      last = std::max(last, curve.buckets().back().last_step);
    }
    for (const auto& [key, list] : layer.lists) {
      last = std::max(last, static_cast<double>(list.columns().back().last_step));
    }
  }
  return last;
}

/// Mean list of each column of steps; empty if none was logged there.
std::vector<std::vector<double>> mean_lists(const ListHistory& history,
                                            const StepColumns& columns) {
  std::vector<StepSpan> logged;
  for (const ListHistory::Column& column : history.columns()) {
    logged.push_back(
        {static_cast<double>(column.first_step), static_cast<double>(column.last_step)});
  }
  std::vector<std::vector<double>> mean(columns.size());
  std::vector<double> steps(columns.size(), 0.0);
  columns.for_each_overlap(spans_of(logged), [&](size_t at, size_t i, double overlap) {
    const ListHistory::Column& list = history.columns()[i];
    mean[at].resize(std::max(mean[at].size(), list.sum.size()));
    const double weight = overlap / static_cast<double>(list.count);
    for (size_t k = 0; k < list.sum.size(); ++k) mean[at][k] += weight * list.sum[k];
    steps[at] += overlap;
  });
  for (size_t at = 0; at < mean.size(); ++at) {
    for (double& value : mean[at]) value /= steps[at];
  }
  return mean;
}

/// History of a layer's mean lists, as loads.
LoadHistory history_of(const LayerRecords& layer, const char* key, const StepColumns& columns) {
  LoadHistory history{layer.layer, {}, {}, 0};
  const auto found = layer.lists.find(key);
  if (found == layer.lists.end()) return history;
  history.load = mean_lists(found->second, columns);
  for (size_t column = 0; column < columns.size(); ++column) {
    history.steps.push_back(std::llround(columns.end(column)));
  }
  const Curve* memory = layer.numbers.find("memory_units");
  if (memory != nullptr) history.memory_units = std::llround(memory->last().value);
  return history;
}

struct LoadFigures {
  const char *key, *rows, *heading, *meaning;
};

/// Heat maps of all layers on one scale.
std::string loads_html(const RunData& run, const LoadFigures& what, FigureIds& ids) {
  std::vector<LoadPanel> panels;
  const StepColumns columns(last_step_of_layers(run, run.experts));
  for (const LayerRecords& layer : run.experts) {
    const LoadHistory history = history_of(layer, what.key, columns);
    const bool has_loads = std::ranges::any_of(
        history.load, [](const std::vector<double>& load) { return load.size() > 1; });
    if (has_loads) panels.push_back(make_load_panel(history));
  }
  if (panels.empty()) return "";
  const LoadScale scale(panels);
  std::string figures;
  for (size_t i = 0; i < std::min(panels.size(), kMostHeatFigures); ++i) {
    figures += load_figure_html(panels[i], scale, what.rows, ids.next());
  }
  std::string html = fmt::format("<h3>{}</h3>\n{}{}", what.heading,
                                 load_legend_html(scale, what.meaning), plots_html(figures));
  if (panels.size() > kMostHeatFigures) {
    html += fmt::format(
        "<p>The first {} of {} layers are drawn; `shoal inspect --experts "
        "--heat-map` draws all of them.</p>\n",
        kMostHeatFigures, panels.size());
  }
  return html;
}

/// Heat map of a metric for more layers than there are colours: a row per layer.
std::string grid_html(const std::vector<FigureLine>& lines, const MetricInfo& info,
                      const StepColumns& columns, FigureIds& ids) {
  ValueGrid grid{info.label, "layer", {}, columns.last_step(), {}, info.quantity};
  for (const FigureLine& line : lines) {
    // Layer names are too long for row labels, so rows have the numbers of the list of layers.
    grid.row_labels.push_back(std::to_string(line.colour + 1));
    std::vector<StepSpan> logged;
    std::vector<double> means;
    for (const Curve::Bucket& bucket : line.curve->buckets()) {
      logged.push_back({bucket.first_step, bucket.last_step});
      means.push_back(bucket.mean());
    }
    grid.value.push_back(columns.means(spans_of(logged), means));
  }
  return grid_figure_html(grid, ids.next());
}

/// Figures of each metric except `left_out`: curves for few layers, a heat map for many.
std::string numbers_html(const RunData& run, const std::vector<LayerRecords>& layers,
                         const std::vector<std::string>& left_out, FigureIds& ids) {
  std::vector<std::string> keys;
  for (const LayerRecords& layer : layers) {
    for (const Curve& curve : layer.numbers.curves()) {
      const bool is_wanted = std::ranges::find(left_out, curve.key()) == left_out.end();
      if (is_wanted && std::ranges::find(keys, curve.key()) == keys.end()) {
        keys.push_back(curve.key());
      }
    }
  }
  std::string figures, constants;
  const StepColumns columns(last_step_of_layers(run, layers));
  for (const std::string& key : keys) {
    const MetricInfo info = metric_info(key);
    std::vector<FigureLine> lines;
    for (size_t i = 0; i < layers.size(); ++i) {
      const Curve* curve = layers[i].numbers.find(key);
      if (curve != nullptr && curve->num_finite() > 0) lines.push_back({layers[i].layer, curve, i});
    }
    if (lines.empty()) continue;
    const bool are_constant = std::ranges::all_of(lines, [&](const FigureLine& line) {
      return line.curve->is_constant() &&
             line.curve->last().value == lines.front().curve->last().value;
    });
    if (are_constant) {
      constants += fmt::format("{}{} {}", constants.empty() ? "" : "; ", xml_text(info.label),
                               value_text(lines.front().curve->last().value, info.quantity));
    } else if (lines.size() <= kNumCurveColours) {
      figures += curve_figure_html(
          {info.label, info.quantity, lines, resumed_steps(run), columns.last_step()}, ids.next());
    } else {
      figures += grid_html(lines, info, columns, ids);
    }
  }
  std::string html = plots_html(figures);
  if (!figures.empty() && layers.size() > kNumCurveColours) {
    html += "<details><summary>Names of the layers, by row</summary>\n<ol>\n";
    for (const LayerRecords& layer : layers) {
      html += fmt::format("<li>{}</li>\n", xml_text(layer.layer));
    }
    html += "</ol></details>\n";
  }
  if (!constants.empty()) {
    html += fmt::format("<p>The same in all layers throughout: {}.</p>\n", constants);
  }
  return html;
}

/// Heat map of a gate's rate by position in the context; no rows if nothing was logged.
ValueGrid position_grid(const LayerRecords& gate, const StepColumns& columns) {
  ValueGrid grid{gate.layer, "part of the context", {}, columns.last_step(), {}, Quantity::kShare};
  const auto found = gate.lists.find("rate_by_position");
  if (found == gate.lists.end()) return grid;
  const std::vector<std::vector<double>> rates = mean_lists(found->second, columns);
  size_t parts = 0;
  for (const auto& rate : rates) parts = std::max(parts, rate.size());
  for (size_t part = 0; part < parts; ++part) {
    grid.row_labels.push_back(
        fmt::format("{:.0f} %", 100.0 * static_cast<double>(part) / static_cast<double>(parts)));
    grid.value.emplace_back();
    for (const auto& rate : rates) {
      grid.value.back().push_back(part < rate.size() ? rate[part] : std::nan(""));
    }
  }
  return grid;
}

/// Heat maps of all gates' rates by position, on one scale.
std::string gate_positions_html(const RunData& run, FigureIds& ids) {
  const StepColumns columns(last_step_of_layers(run, run.gates));
  std::vector<ValueGrid> grids;
  double most = 0.0;
  for (const LayerRecords& gate : run.gates) {
    ValueGrid grid = position_grid(gate, columns);
    if (grid.value.empty()) continue;
    most = std::max(most, range_of(grid.value).high);
    grids.push_back(std::move(grid));
  }
  std::string figures;
  for (size_t i = 0; i < std::min(grids.size(), kMostHeatFigures); ++i) {
    grids[i].scale = ValueRange{0.0, most};
    figures += grid_figure_html(grids[i], ids.next());
  }
  if (figures.empty()) return "";
  return fmt::format(
      "<h3>Gate rate by position in the text</h3>\n<p>Each row is a part of the context, from its "
      "beginning at the top; the number beside it is where it begins. The colour is the share of "
      "its tokens, anchors left out, that attend.{}</p>\n{}",
      grids.size() > kMostHeatFigures
          ? fmt::format(" The first {} of {} gates are drawn.", kMostHeatFigures, grids.size())
          : "",
      plots_html(figures));
}

/// Concatenates `html` of each run under its heading.
template <class Html>
std::string of_runs(const Runs& runs, const Html& html) {
  std::string all;
  for (const RunData& run : runs) all += with_heading(run, runs, html(run));
  return all;
}

std::string under(const char* heading, const std::string& html) {
  return html.empty() ? "" : fmt::format("<h3>{}</h3>\n{}", heading, html);
}

}  // namespace

std::string expert_layers_html(const Runs& runs, FigureIds& ids) {
  return of_runs(runs, [&](const RunData& run) {
    return loads_html(run,
                      {"load", "unit", "Load of each unit",
                       "Each row is a unit, an expert or memory unit; its colour is its share of "
                       "the layer's choices over an even share."},
                      ids) +
           loads_html(run,
                      {"rank_overload", "expert rank", "Load of each expert rank",
                       "Each row is an expert rank; its colour is its load over the mean of the "
                       "ranks."},
                      ids) +
           under("Routing of each layer",
                 numbers_html(run, run.experts,
                              {"tokens", "load_min", "load_max", "load_mean", "memory_units",
                               "multiply_adds_per_token", "samples"},
                              ids));
  });
}

std::string gate_layers_html(const Runs& runs, FigureIds& ids) {
  return of_runs(runs, [&](const RunData& run) {
    return under("Gate of each layer", numbers_html(run, run.gates, {}, ids)) +
           gate_positions_html(run, ids);
  });
}

std::string permutation_layers_html(const Runs& runs, FigureIds& ids) {
  return of_runs(runs, [&](const RunData& run) {
    return under("Permutation of each layer", numbers_html(run, run.permutations, {}, ids));
  });
}

}  // namespace shoal
