#pragma once

#include <string>
#include <vector>

#include "launch/report/figures.h"
#include "launch/runs/run_data.h"

namespace shoal {

/// The report on runs while it is written.
struct Report {
  const std::vector<RunData>& runs;
  Page& page;
  size_t most_points = 0;  ///< of a curve, as add_curves takes it

  bool is_comparison() const { return runs.size() > 1; }
  /// Begins the blocks on one of several runs by its name.
  void name_run(const RunData& run) const {
    if (is_comparison()) page.add({{"heading", run.name}});
  }
};

// Each adds its sections. One that has nothing to show adds none.

/// How the runs ended, with their last metrics; then notes on what users should look into.
void add_overview(const Report& report);
/// A section for each MetricGroup (training, speed, experts, gates, sparsity, other), one of
/// evaluations, and the pictures that tasks drew. A figure shows one metric of all runs.
void add_metrics(const Report& report);
/// Tables of the runs' confusion.json, which `shoal eval --confusion` writes.
void add_confusion(const Report& report);
/// Checkpoints and starts, recipes, environments.
void add_records(const Report& report);

// Metrics by layer, run by run; add_metrics ends its section of that kind with them.
void add_expert_layers(const Report& report);
void add_gate_layers(const Report& report);
void add_permutation_layers(const Report& report);
/// A section with the norms of layers.jsonl, in fewer points than other figures.
void add_layer_norms(const Report& report);
/// Pictures of samples of the last evaluation.
void add_pictures(const Report& report);

/// Tables of a confusion.json: recall, precision and F1 of each class, up to 30 classes the matrix
/// of labels and predicted classes, the most frequent confusions, the most confident mistakes.
/// Throws nlohmann::json::exception for other JSON.
std::vector<CaptionedTable> confusion_tables(const nlohmann::ordered_json& confusion);

/// Steps at which a run was resumed (`starts` in env.json), ascending.
std::vector<double> resumed_steps(const RunData& run);

/// Text of a key in the run's recipe; "" without it.
std::string recipe_value(const RunData& run, const std::string& path);

/// Adds a figure of each metric to the section: curves, or a heat map if more layers have it than
/// there are colours. Constant metrics, except those with is_shown_constant, are listed in one
/// sentence instead: "The same `where`: ...".
void add_figures(const Report& report, const std::vector<CurveFigure>& figures,
                 const char* where = "throughout");

}  // namespace shoal
