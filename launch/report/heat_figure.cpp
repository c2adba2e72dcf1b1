#include "launch/report/heat_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "launch/pages/page.h"
#include "launch/pages/picture.h"
#include "launch/report/step_axis.h"

// Lengths are in SVG pixels.
namespace shoal {
namespace {

constexpr double kHeatWidth = 400, kHeatTop = 6, kHeatFooter = 26;
constexpr double kHeatGap = 5;  ///< between experts and memory units
constexpr double kHeatLabelHeight = 13;

constexpr Rgb kNotLogged{128, 128, 128};
constexpr const char* kNotLoggedText = "<p class=\"values\">grey: nothing was logged</p>\n";

bool has_gaps(const std::vector<std::vector<double>>& rows) {
  return std::ranges::any_of(rows, [](const std::vector<double>& row) {
    return std::ranges::any_of(row, [](double value) { return !std::isfinite(value); });
  });
}

/// Cells of one colour each, with their positions.
struct Cells {
  size_t first_row = 0, num_rows = 0;
  double top = 0;
  Picture picture;
};

/// A heat map of rows over steps.
struct HeatMap {
  std::string title, description;
  std::vector<std::string> row_labels = {};
  double last_step = 0, row_height = 0;
  std::vector<Cells> parts = {};
  std::string below = {};  ///< markup below the picture

  double bottom() const {
    return parts.back().top + row_height * static_cast<double>(parts.back().num_rows);
  }
};

double row_height_of(size_t rows) {
  return std::clamp(150.0 / static_cast<double>(std::max<size_t>(1, rows)), 1.2, 16.0);
}

std::string cells_svg(const HeatMap& heat, const Cells& cells) {
  const double height = heat.row_height * static_cast<double>(cells.num_rows);
  std::string svg = fmt::format(
      "<image x=\"{0}\" y=\"{1:.1f}\" width=\"{2}\" height=\"{3:.1f}\" "
      "preserveAspectRatio=\"none\" "
      "href=\"{4}\"/>\n<rect class=\"frame\" x=\"{0}\" y=\"{1:.1f}\" width=\"{2}\" "
      "height=\"{3:.1f}\"/>\n",
      kPlotLeft, cells.top, kPlotRight - kPlotLeft, height, png_address(cells.picture));
  size_t stride = 1;
  while (static_cast<double>(stride) * heat.row_height < kHeatLabelHeight) stride *= 2;
  for (size_t row = 0; row < cells.num_rows; row += stride) {
    const double middle = cells.top + (static_cast<double>(row) + 0.5) * heat.row_height;
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kPlotLeft - 6,
                       middle + 4, xml_text(heat.row_labels[cells.first_row + row]));
  }
  return svg;
}

std::string heat_html(const HeatMap& heat, const std::string& id) {
  std::string svg = fmt::format(
      "<figure class=\"plot heat\"><figcaption>{1}</figcaption>\n"
      "<svg viewBox=\"0 0 {2} {3:.0f}\" role=\"img\" aria-labelledby=\"{0}t\" "
      "aria-describedby=\"{0}d\">\n<title id=\"{0}t\">{1} over steps</title>\n"
      "<desc id=\"{0}d\">{4}</desc>\n",
      id, xml_text(heat.title), kHeatWidth, heat.bottom() + kHeatFooter,
      xml_text(heat.description));
  for (const Cells& cells : heat.parts) svg += cells_svg(heat, cells);
  return svg + step_axis_svg(heat.last_step, heat.bottom()) + "</svg>\n" + heat.below +
         "</figure>\n";
}

std::string row_name(const LoadPanel& panel, size_t row) {
  const size_t first = panel.row_offsets[row], last = panel.row_offsets[row + 1] - 1;
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

Cells load_cells(const LoadPanel& panel, const LoadScale& scale, size_t first, size_t end) {
  Cells cells{first,
              end - first,
              kHeatTop,
              {static_cast<int64_t>(panel.num_columns()), static_cast<int64_t>(end - first), {}}};
  for (size_t row = first; row < end; ++row) {
    for (const double share : panel.share[row]) {
      cells.picture.pixels.push_back(std::isnan(share) ? kNotLogged
                                                       : LoadScale::colour(scale.level(share)));
    }
  }
  return cells;
}

/// Description: the least and the most loaded row in the last column with loads.
std::string load_description(const LoadPanel& panel, const std::string& rows) {
  size_t column = panel.num_columns() - 1;
  while (column > 0 && std::isnan(panel.share[0][column])) --column;
  const auto last = [&](size_t row) { return panel.share[row][column]; };
  size_t least = 0, most = 0;
  for (size_t row = 1; row < panel.num_rows(); ++row) {
    if (last(row) < last(least)) least = row;
    if (last(row) > last(most)) most = row;
  }
  return fmt::format(
      "{} rows. At step {}, {} {} has the largest load, {:.2f} times an even share, and {} {} the "
      "smallest, {:.2f} times.{}",
      panel.num_rows(), panel.column_steps[column], rows, row_name(panel, most), last(most), rows,
      row_name(panel, least), last(least),
      panel.has_both_kinds() ? " Experts are above, memory units below." : "");
}

/// Description: the range of all values, then the extremes of the last column.
std::string grid_description(const ValueGrid& grid) {
  const ValueRange range = range_of(grid.value);
  const auto text = [&](double value) { return value_text(value, grid.quantity); };
  std::string description = fmt::format("{} rows, one a {}; from {} to {}.", grid.value.size(),
                                        grid.rows, text(range.low), text(range.high));
  size_t least = 0, most = 0;
  const auto last = [&](size_t row) { return grid.value[row].back(); };
  for (size_t row = 1; row < grid.value.size(); ++row) {
    if (!(last(row) >= last(least))) least = row;
    if (!(last(row) <= last(most))) most = row;
  }
  if (!std::isfinite(last(least)) || !std::isfinite(last(most))) return description;
  return description + fmt::format(" At the last step, {} in row '{}' to {} in row '{}'.",
                                   text(last(least)), grid.row_labels[least], text(last(most)),
                                   grid.row_labels[most]);
}

}  // namespace

std::string load_figure_html(const LoadPanel& panel, const LoadScale& scale,
                             const std::string& rows, const std::string& id) {
  HeatMap heat{.title = panel.layer,
               .description = load_description(panel, rows),
               .last_step = static_cast<double>(panel.column_steps.back()),
               .row_height = row_height_of(panel.num_rows())};
  for (size_t row = 0; row < panel.num_rows(); ++row) {
    heat.row_labels.push_back(std::to_string(panel.row_offsets[row]));
  }
  if (panel.num_expert_rows > 0) {
    heat.parts.push_back(load_cells(panel, scale, 0, panel.num_expert_rows));
  }
  if (panel.num_expert_rows < panel.num_rows()) {
    Cells memory = load_cells(panel, scale, panel.num_expert_rows, panel.num_rows());
    if (!heat.parts.empty()) memory.top = heat.bottom() + kHeatGap;
    heat.parts.push_back(std::move(memory));
  }
  if (panel.has_both_kinds()) {
    heat.below = fmt::format(
        "<p class=\"values\">above the gap experts, below it memory units ({} to {})</p>\n",
        panel.row_offsets[panel.num_expert_rows], panel.row_offsets.back() - 1);
  }
  if (has_gaps(panel.share)) heat.below += kNotLoggedText;
  return heat_html(heat, id);
}

std::string load_legend_html(const LoadScale& scale, const std::string& what) {
  std::vector<Rgb> colours;
  for (int64_t level = 0; level < LoadScale::kLevels; ++level) {
    colours.push_back(LoadScale::colour(level));
  }
  const std::vector<ScaleTick> ticks = scale.ticks();
  const std::string label =
      fmt::format("Colours from blue, {}, over light grey, {}, to red, {}; black is zero",
                  ticks.front().label, ticks[ticks.size() / 2].label, ticks.back().label);
  return fmt::format("<div class=\"legendbox\"><p>{} Black is zero.</p>\n{}</div>\n",
                     xml_text(what), page_scale(label, colours, ticks));
}

ValueRange range_of(const std::vector<std::vector<double>>& value) {
  ValueRange range{std::numeric_limits<double>::infinity(),
                   -std::numeric_limits<double>::infinity()};
  for (const auto& row : value) {
    for (const double number : row) {
      if (!std::isfinite(number)) continue;
      range.low = std::min(range.low, number);
      range.high = std::max(range.high, number);
    }
  }
  return range;
}

std::string grid_figure_html(const ValueGrid& grid, const std::string& id) {
  constexpr int64_t kLevels = 64;
  const ValueRange scale = grid.scale.value_or(range_of(grid.value));
  const double span = scale.high > scale.low ? scale.high - scale.low : 1.0;
  Cells cells{
      0, grid.value.size(), kHeatTop, {std::ssize(grid.value.front()), std::ssize(grid.value), {}}};
  for (const auto& row : grid.value) {
    for (const double value : row) {
      const double level = std::round((value - scale.low) / span * (kLevels - 1)) / (kLevels - 1);
      cells.picture.pixels.push_back(std::isfinite(value) ? viridis(level) : kNotLogged);
    }
  }
  const std::string legend =
      viridis_scale(value_text(scale.low, grid.quantity), value_text(scale.high, grid.quantity));
  return heat_html({grid.title,
                    grid_description(grid),
                    grid.row_labels,
                    grid.last_step,
                    row_height_of(grid.value.size()),
                    {cells},
                    legend + (has_gaps(grid.value) ? kNotLoggedText : "")},
                   id);
}

}  // namespace shoal
