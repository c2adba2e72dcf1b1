#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/pages/load_panel.h"
#include "launch/report/known_metrics.h"

namespace shoal {

/// The HTML of a figure of loads over steps, in the colours of `scale`. The panel's columns are
/// equal parts of the steps from 0 to its last one (StepColumns). `rows` is what a row is, "unit"
/// or "expert rank". `id` is unique in the page.
std::string load_figure_html(const LoadPanel& panel, const LoadScale& scale,
                             const std::string& rows, const std::string& id);

/// The colours of loads and what they mean: `what`, in words, a row is and is coloured by.
std::string load_legend_html(const LoadScale& scale, const std::string& what);

struct ValueRange {
  double low = 0, high = 0;
};

/// Numbers of one kind, rows over steps.
struct ValueGrid {
  std::string title, rows;                 ///< `rows` is what a row is
  std::vector<std::string> row_labels;     ///< one a row, written as far as there is room
  double last_step = 0;                    ///< columns are equal parts of the steps up to it
  std::vector<std::vector<double>> value;  ///< [rows][columns]; NaN: none
  Quantity quantity = Quantity::kPlain;
  std::optional<ValueRange> scale = {};  ///< of the colours; unset: range_of the values
};

/// The least and the largest of the values that are finite; `low` > `high` without any.
ValueRange range_of(const std::vector<std::vector<double>>& value);

/// The HTML of a figure of such numbers, from dark to bright, with a legend of its own. There is at
/// least one row.
std::string grid_figure_html(const ValueGrid& grid, const std::string& id);

}  // namespace shoal
