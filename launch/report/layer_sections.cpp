#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launch/report/load_map.h"
#include "launch/report/sections.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

constexpr size_t kMostCurves = 8, kMostHeatFigures = 64;

/// Adds the first figures under a heading.
void add_heats(Page& page, const char* heading, const char* meaning,
               const std::vector<HeatFigure>& figures) {
  if (figures.empty()) return;
  page.add({{"heading", heading}});
  page.add({{"paragraph", meaning}});
  const size_t drawn = std::min(figures.size(), kMostHeatFigures);
  for (size_t i = 0; i < drawn; ++i) add_heat(page, figures[i]);
  if (drawn == figures.size()) return;
  page.add(
      {{"paragraph", fmt::format("The first {} of {} layers are drawn.", drawn, figures.size())}});
}

struct LoadFigures {
  const char *key, *kind, *heading, *meaning;
};

/// Heat maps of all layers on one scale.
void add_loads(const Report& report, size_t run, const LoadFigures& what) {
  std::vector<std::vector<HeatRow>> layers;
  std::vector<HeatFigure> figures;
  for (const LayerRecords& layer : report.runs[run].experts) {
    const auto list = layer.lists.find(what.key);
    if (list == layer.lists.end()) continue;
    const Curve* memory = layer.numbers.find("memory_units");
    const size_t size = list->second.columns().back().sum.size();
    const auto split = memory == nullptr ? 0 : size - static_cast<size_t>(memory->last().value);
    layers.push_back(list_rows(list->second, what.kind, split, /*is_load=*/true));
    figures.push_back({layer.layer, Quantity::kPlain, run, layers.back()});
    figures.back().is_load = true;
    if (split == 0 || split == size) continue;
    // The line is above the row that begins with the first memory unit.
    const auto is_first = [split](const HeatRow& row) {
      return row.label == std::to_string(split);
    };
    figures.back().split =
        static_cast<size_t>(std::ranges::find_if(layers.back(), is_first) - layers.back().begin());
    figures.back().note =
        fmt::format("above the line experts, below it memory units ({} to {})", split, size - 1);
  }
  std::erase_if(figures, [](const HeatFigure& figure) { return figure.rows.size() < 2; });
  const double limit = LoadScale(layers).limit();
  for (HeatFigure& figure : figures) {
    figure.low = 1 / limit;
    figure.high = limit;
  }
  add_heats(report.page, what.heading, what.meaning, figures);
}

/// Minimum and maximum of the finite values above `floor`.
std::pair<double, double> range_of(const std::vector<HeatRow>& rows, double floor = -INFINITY) {
  double low = INFINITY, high = -INFINITY;
  for (const HeatRow& row : rows) {
    for (const double value : row.value) {
      if (!std::isfinite(value) || value <= floor) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  return {low, high};
}

/// Heat map of a metric for more layers than there are colours: a row per layer.
void add_grid(const Report& report, const CurveFigure& metric) {
  const MetricInfo& info = metric.info;
  HeatFigure figure{info.label, info.quantity, metric.lines.front().run, {}};
  for (const FigureLine& line : metric.lines) {
    HeatRow& row = figure.rows.emplace_back(
        HeatRow{std::to_string(figure.rows.size() + 1), line.name, {}, {}, {}});
    for (const Curve::Bucket& bucket : joined_buckets(line.curve->buckets(), report.most_points)) {
      row.begin.push_back(bucket.first_step);
      row.end.push_back(bucket.last_step);
      row.value.push_back(bucket.mean());
    }
  }
  figure.is_logarithmic = info.is_logarithmic;
  if (info.is_logarithmic) figure.note = "the colours follow the logarithm";
  std::tie(figure.low, figure.high) = range_of(figure.rows, info.is_logarithmic ? 0.0 : -INFINITY);
  add_heat(report.page, figure);
}

/// Figures of each metric except `left_out`: curves for few layers, a heat map for many.
void add_numbers(const Report& report, size_t run, const std::vector<LayerRecords>& layers,
                 const std::vector<std::string>& left_out = {}) {
  std::vector<CurveFigure> metrics;
  for (const LayerRecords& layer : layers) {
    for (const Curve& curve : layer.numbers.curves()) {
      const bool is_wanted = std::ranges::find(left_out, curve.key()) == left_out.end();
      if (is_wanted) add_line(metrics, {layer.layer, &curve, run});
    }
  }
  add_figures(report, metrics, "in all layers throughout");
}

/// Heat maps of all gates' rates by position in the context, on one scale.
void add_gate_positions(const Report& report, size_t run) {
  std::vector<HeatFigure> figures;
  double most = 0.0;
  for (const LayerRecords& gate : report.runs[run].gates) {
    const auto list = gate.lists.find("rate_by_position");
    if (list == gate.lists.end()) continue;
    figures.push_back(
        {gate.layer, Quantity::kShare, run, list_rows(list->second, "part", 0, /*is_load=*/false)});
    most = std::max(most, range_of(figures.back().rows).second);
  }
  for (HeatFigure& figure : figures) figure.high = most;
  add_heats(report.page, "Gate rate by position in the text",
            "Each row is one of equal parts of the context, the first at the top. The colour is "
            "the share of its tokens, anchors left out, that attend.",
            figures);
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

void add_figures(const Report& report, const std::vector<CurveFigure>& figures, const char* where) {
  std::vector<std::string> constants;
  for (const CurveFigure& figure : figures) {
    if (!figure.info.is_shown_constant && figure.is_constant()) {
      const double value = figure.lines.front().curve->last().value;
      constants.push_back(figure.info.label + " " + value_text(value, figure.info.quantity));
    } else if (!figure.is_by_run && figure.lines.size() > kMostCurves) {
      add_grid(report, figure);
    } else {
      add_curves(report.page, figure, report.most_points);
    }
  }
  if (constants.empty()) return;
  report.page.add(
      {{"paragraph", fmt::format("The same {}: {}.", where, join_words(constants, "; "))}});
}

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

void add_layer_norms(const Report& report) {
  constexpr size_t kMostNumbers = 30'000, kLeast = 8, kMostSteps = 200;
  size_t curves = 1;
  for (const RunData& run : report.runs) {
    for (const LayerRecords& layer : run.norms) curves += layer.numbers.curves().size();
  }
  const Report own{report.runs, report.page, std::clamp(kMostNumbers / curves, kLeast, kMostSteps)};
  report.page.begin_section("layers", "Layers");
  add_by_run(own, &RunData::norms, "Norms of each layer", [&](size_t run) {
    report.page.add({{"paragraph",
                      "L2 norms over all ranks: of the weights after the step, of the gradients "
                      "before clipping, and of what the step added to the weights."}});
    add_numbers(own, run, report.runs[run].norms);
  });
}

}  // namespace shoal
