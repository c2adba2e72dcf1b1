#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/pages/load_panel.h"
#include "launch/report/known_metrics.h"

namespace shoal {

/// The HTML of a figure of loads over steps, in the colours of `scale`. The panel's columns are
/// equal parts of the steps from 0 to its last one (StepColumns). `rows`: name of a row, "unit" or
/// "expert rank". `id` must be unique in the page.
std::string load_figure_html(const LoadPanel& panel, const LoadScale& scale,
                             const std::string& rows, const std::string& id);

/// Legend of a load figure; `what` describes, in words, a row and its colour.
std::string load_legend_html(const LoadScale& scale, const std::string& what);

struct ValueRange {
  double low = 0, high = 0;
};

/// Values of one quantity, rows over steps.
struct ValueGrid {
  std::string title, rows;                 ///< `rows`: name of a row
  std::vector<std::string> row_labels;     ///< one a row, shown if there is room
  double last_step = 0;                    ///< columns are equal parts of the steps up to this one
  std::vector<std::vector<double>> value;  ///< [rows][columns]; NaN: no value
  Quantity quantity = Quantity::kPlain;
  std::optional<ValueRange> scale = {};  ///< range of the colours; default: range_of(value)
};

/// The smallest and largest finite values; `low` > `high` if there are none.
ValueRange range_of(const std::vector<std::vector<double>>& value);

/// The HTML of a figure of such values, dark to bright, with a legend. Requires at least one row.
std::string grid_figure_html(const ValueGrid& grid, const std::string& id);

}  // namespace shoal
