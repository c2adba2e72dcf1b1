#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launch/pages/load_panel.h"
#include "launch/report/figures.h"
#include "launch/report/known_metrics.h"
#include "launch/report/sections.h"

namespace shoal {
namespace {

constexpr size_t kMostCurves = 8, kMostHeatFigures = 64;

/// History of a layer's mean lists, as loads.
LoadHistory history_of(const LayerRecords& layer, const ListHistory& list) {
  LoadHistory history{layer.layer, {}, {}, 0};
  for (const ListHistory::Column& column : list.columns()) {
    history.steps.push_back(column.last_step);
    std::vector<double>& mean = history.load.emplace_back(column.sum);
    for (double& value : mean) value /= static_cast<double>(column.count);
  }
  const Curve* memory = layer.numbers.find("memory_units");
  if (memory != nullptr) history.memory_units = std::llround(memory->last().value);
  return history;
}

/// Rows over the columns of a panel, whose steps the list has.
HeatRow row_of(const LoadPanel& panel, size_t row, const ListHistory& list, const char* kind) {
  const size_t first = panel.row_offsets[row], last = panel.row_offsets[row + 1] - 1;
  HeatRow result{
      std::to_string(first),
      fmt::format("{} {}", kind,
                  first == last ? std::to_string(first) : fmt::format("{} to {}", first, last)),
      {},
      {},
      panel.share[row]};
  for (size_t column = 0; column < panel.num_columns(); ++column) {
    result.begin.push_back(
        static_cast<double>(list.columns()[panel.column_offsets[column]].first_step));
    result.end.push_back(static_cast<double>(panel.column_steps[column]));
  }
  return result;
}

struct LoadFigures {
  const char *key, *kind, *heading, *meaning;
};

/// Heat maps of all layers on one scale.
void add_loads(const Report& report, size_t run, const LoadFigures& what) {
  std::vector<LoadPanel> panels;
  std::vector<const ListHistory*> lists;
  for (const LayerRecords& layer : report.runs[run].experts) {
    const auto list = layer.lists.find(what.key);
    if (list == layer.lists.end()) continue;
    LoadPanel panel = make_load_panel(history_of(layer, list->second));
    if (panel.num_rows() < 2) continue;
    panels.push_back(std::move(panel));
    lists.push_back(&list->second);
  }
  if (panels.empty()) return;
  const double limit = LoadScale(panels).limit();
  const size_t drawn = std::min(panels.size(), kMostHeatFigures);
  report.page.add({{"heading", what.heading}});
  report.page.add({{"text", what.meaning}});
  for (size_t i = 0; i < drawn; ++i) {
    const LoadPanel& panel = panels[i];
    HeatFigure figure{panel.layer, Quantity::kPlain, run, {}, 1 / limit, limit, /*is_load=*/true};
    for (size_t row = 0; row < panel.num_rows(); ++row) {
      figure.rows.push_back(row_of(panel, row, *lists[i], what.kind));
    }
    if (panel.has_both_kinds()) {
      figure.split = panel.num_expert_rows;
      figure.note =
          fmt::format("above the line experts, below it memory units ({} to {})",
                      panel.row_offsets[panel.num_expert_rows], panel.row_offsets.back() - 1);
    }
    add_heat(report.page, figure);
  }
  if (drawn == panels.size()) return;
  report.page.add({{"text", fmt::format("The first {} of {} layers are drawn; `shoal inspect "
                                        "--experts --heat-map` draws all of them.",
                                        drawn, panels.size())}});
}

/// Minimum and maximum of the finite values.
std::pair<double, double> range_of(const std::vector<HeatRow>& rows) {
  double low = INFINITY, high = -INFINITY;
  for (const HeatRow& row : rows) {
    for (const double value : row.value) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  return {low, high};
}

/// Heat map of a metric for more layers than there are colours: a row per layer.
void add_grid(Page& page, const std::vector<FigureLine>& lines, const MetricInfo& info) {
  HeatFigure figure{info.label, info.quantity, lines.front().run, {}};
  for (const FigureLine& line : lines) {
    HeatRow& row = figure.rows.emplace_back(
        HeatRow{std::to_string(figure.rows.size() + 1), line.name, {}, {}, {}});
    for (const Curve::Bucket& bucket : line.curve->buckets()) {
      row.begin.push_back(bucket.first_step);
      row.end.push_back(bucket.last_step);
      row.value.push_back(bucket.mean());
    }
  }
  std::tie(figure.low, figure.high) = range_of(figure.rows);
  add_heat(page, figure);
}

/// Figures of each metric except `left_out`: curves for few layers, a heat map for many.
void add_numbers(const Report& report, size_t run, const std::vector<LayerRecords>& layers,
                 const std::vector<std::string>& left_out = {}) {
  std::vector<std::string> keys;
  for (const LayerRecords& layer : layers) {
    for (const Curve& curve : layer.numbers.curves()) {
      const bool is_wanted = std::ranges::find(left_out, curve.key()) == left_out.end();
      if (is_wanted && std::ranges::find(keys, curve.key()) == keys.end()) {
        keys.push_back(curve.key());
      }
    }
  }
  std::string constants;
  for (const std::string& key : keys) {
    const MetricInfo info = metric_info(key);
    std::vector<FigureLine> lines;
    for (const LayerRecords& layer : layers) {
      const Curve* curve = layer.numbers.find(key);
      if (curve != nullptr && curve->num_finite() > 0) lines.push_back({layer.layer, curve, run});
    }
    if (lines.empty()) continue;
    const double value = lines.front().curve->last().value;
    const bool are_constant = std::ranges::all_of(lines, [value](const FigureLine& line) {
      return line.curve->is_constant() && line.curve->last().value == value;
    });
    if (are_constant) {
      constants += fmt::format("{}{} {}", constants.empty() ? "" : "; ", info.label,
                               value_text(value, info.quantity));
    } else if (lines.size() <= kMostCurves) {
      add_curves(report.page, {info.label, info.quantity, lines}, report.most_points);
    } else {
      add_grid(report.page, lines, info);
    }
  }
  if (constants.empty()) return;
  report.page.add({{"text", fmt::format("The same in all layers throughout: {}.", constants)}});
}

/// Heat maps of all gates' rates by position in the context, on one scale.
void add_gate_positions(const Report& report, size_t run) {
  std::vector<HeatFigure> figures;
  double most = 0.0;
  for (const LayerRecords& gate : report.runs[run].gates) {
    const auto found = gate.lists.find("rate_by_position");
    if (found == gate.lists.end()) continue;
    HeatFigure figure{gate.layer, Quantity::kShare, run, {}};
    const LoadHistory history = history_of(gate, found->second);
    for (size_t part = 0; part < history.load.front().size(); ++part) {
      HeatRow& row = figure.rows.emplace_back(
          HeatRow{std::to_string(part + 1), fmt::format("part {}", part + 1), {}, {}, {}});
      for (size_t i = 0; i < history.load.size(); ++i) {
        row.begin.push_back(static_cast<double>(found->second.columns()[i].first_step));
        row.end.push_back(static_cast<double>(history.steps[i]));
        row.value.push_back(part < history.load[i].size() ? history.load[i][part] : NAN);
      }
    }
    most = std::max(most, range_of(figure.rows).second);
    figures.push_back(std::move(figure));
  }
  if (figures.empty()) return;
  report.page.add({{"heading", "Gate rate by position in the text"}});
  report.page.add({{"text",
                    "Each row is one of equal parts of the context, the first at the top. The "
                    "colour is the share of its tokens, anchors left out, that attend."}});
  const size_t drawn = std::min(figures.size(), kMostHeatFigures);
  for (size_t i = 0; i < drawn; ++i) {
    figures[i].high = most;
    add_heat(report.page, figures[i]);
  }
  if (drawn == figures.size()) return;
  report.page.add(
      {{"text", fmt::format("The first {} of {} gates are drawn.", drawn, figures.size())}});
}

/// Adds figures of each run that has such layers.
template <class Add>
void add_by_run(const Report& report, std::vector<LayerRecords> RunData::*layers,
                const char* heading, const Add& add) {
  for (size_t run = 0; run < report.runs.size(); ++run) {
    if ((report.runs[run].*layers).empty()) continue;
    report.name_run(report.runs[run]);
    report.page.add({{"heading", heading}});
    add(run);
  }
}

}  // namespace

void add_expert_layers(const Report& report) {
  add_by_run(report, &RunData::experts, "Routing of each layer", [&](size_t run) {
    add_numbers(report, run, report.runs[run].experts,
                {"tokens", "load_min", "load_max", "load_mean", "memory_units",
                 "multiply_adds_per_token", "samples"});
    add_loads(report, run,
              {"load", "unit", "Load of each unit",
               "Each row is a unit, an expert or memory unit; its colour is its share of the "
               "layer's choices over an even share. Black is zero, grey: nothing was logged."});
    add_loads(report, run,
              {"rank_overload", "expert rank", "Load of each expert rank",
               "Each row is an expert rank; its colour is its load over the mean of the ranks. "
               "Black is zero, grey: nothing was logged."});
  });
}

void add_gate_layers(const Report& report) {
  add_by_run(report, &RunData::gates, "Gate of each layer", [&](size_t run) {
    add_numbers(report, run, report.runs[run].gates);
    add_gate_positions(report, run);
  });
}

void add_permutation_layers(const Report& report) {
  add_by_run(report, &RunData::permutations, "Permutation of each layer",
             [&](size_t run) { add_numbers(report, run, report.runs[run].permutations); });
}

}  // namespace shoal
