#pragma once

#include <string>
#include <vector>

#include "launch/runs/run_data.h"

namespace shoal {

/// A section of the report page on runs. A section without body is omitted.
struct Section {
  std::string id, heading;
  std::string body;  ///< markup
};

/// Generates unique ids for the figures of a page.
class FigureIds {
 public:
  std::string next();

 private:
  int64_t count_ = 0;
};

using Runs = std::vector<RunData>;

/// How the runs ended, with their last metrics.
Section overview_section(const Runs& runs);
/// Notes on what users should look into.
Section notes_section(const Runs& runs);

/// All sections of metrics: one for each MetricGroup (training, speed, experts, gates, sparsity,
/// other), one of evaluations, and pictures_section. A figure shows one metric of all runs.
std::vector<Section> metric_sections(const Runs& runs, FigureIds& ids);

/// Puts the run's name as a heading before `html`, if there are several runs.
std::string with_heading(const RunData& run, const Runs& runs, const std::string& html);

/// Arranges figures side by side, as many as fit; "" without figures.
std::string plots_html(const std::string& figures);

/// Metrics by layer, run by run; metric_sections ends its section of that kind with them.
std::string expert_layers_html(const Runs& runs, FigureIds& ids);
std::string gate_layers_html(const Runs& runs, FigureIds& ids);
std::string permutation_layers_html(const Runs& runs, FigureIds& ids);

/// Pictures that the tasks drew at the last evaluation; one of metric_sections.
Section pictures_section(const Runs& runs);
/// Tables of the runs' confusion.json, which `shoal eval --confusion` writes.
Section confusion_section(const Runs& runs);
Section checkpoints_section(const Runs& runs);
Section recipe_section(const Runs& runs);
Section environment_section(const Runs& runs);

/// A table for text or a page; the first of `rows` is its head.
struct CaptionedTable {
  std::string caption;
  std::vector<std::vector<std::string>> rows;
};
/// Tables of a confusion.json: recall, precision and F1 of each class, up to 30 classes the matrix
/// of labels and predicted classes, the most frequent confusions, the most confident mistakes.
/// Throws nlohmann::json::exception for other JSON.
std::vector<CaptionedTable> confusion_tables(const nlohmann::ordered_json& confusion);

/// Steps at which a run was resumed (`starts` in env.json), ascending.
std::vector<double> resumed_steps(const RunData& run);
/// Last logged step of all runs.
double last_step_of(const Runs& runs);

/// Markup of a section with its heading.
std::string section_html(const Section& section);

}  // namespace shoal
