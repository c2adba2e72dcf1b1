#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/pages/load_panel.h"
#include "launch/report/known_metrics.h"

namespace shoal {

/// HTML of a heat map of loads over steps, in the colours of `scale`. Columns of `panel` must be
/// equal parts of the steps from 0 to its last step (StepColumns). `rows` names a row: "unit"
/// (expert or memory unit) or, for loads of ranks, "expert rank". `id` must be unique in the page.
std::string load_figure_html(const LoadPanel& panel, const LoadScale& scale,
                             const std::string& rows, const std::string& id);

/// Legend of load colours; `what` describes rows and values in words.
std::string load_legend_html(const LoadScale& scale, const std::string& what);

struct ValueRange {
  double low = 0, high = 0;
};

/// Values of one metric for a heat map, rows over steps.
struct ValueGrid {
  std::string title, rows;                 ///< `rows` names what a row stands for
  std::vector<std::string> row_labels;     ///< one per row, omitted where there is no room
  double last_step = 0;                    ///< columns are equal parts of the steps from 0 to it
  std::vector<std::vector<double>> value;  ///< [rows][columns]; NaN: no value
  Quantity quantity = Quantity::kPlain;
  std::optional<ValueRange> scale = {};  ///< range of the colours; unset: range_of(value)
};

/// Minimum and maximum of the finite values; `low` > `high` if there are none.
ValueRange range_of(const std::vector<std::vector<double>>& value);

/// HTML of a heat map of at least one row of values, dark for low and bright for high, with legend.
std::string grid_figure_html(const ValueGrid& grid, const std::string& id);

}  // namespace shoal
