#include "launch/pages/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "launch/pages/page.h"
#include "launch/pages/picture.h"

// Lengths are in SVG pixels.
namespace shoal {
namespace {

constexpr double kLeft = 84, kPlotWidth = 720, kWidth = 920;
constexpr double kHeader = 106, kPanelTitle = 22, kPanelFooter = 58;
constexpr double kLabelHeight = 14;
constexpr double kKindGap = 8;  ///< between experts and memory units

std::string colour_of(int64_t level) { return hex_colour(LoadScale::colour(level)); }

/// A panel with its position.
struct Placed {
  LoadPanel panel;
  double top = 0;

  double row_height() const {
    return std::clamp(200.0 / static_cast<double>(std::max<size_t>(1, panel.num_rows())), 2.0,
                      18.0);
  }
  double gap() const { return panel.has_both_kinds() ? kKindGap : 0.0; }
  double row_top(size_t row) const {
    return top + row_height() * static_cast<double>(row) +
           (row >= panel.num_expert_rows ? gap() : 0.0);
  }
  double height() const { return row_height() * static_cast<double>(panel.num_rows()) + gap(); }
  double column_width() const {
    return kPlotWidth / static_cast<double>(std::max<size_t>(1, panel.num_columns()));
  }
};

std::string text_at(double x, double y, const std::string& text, const std::string& attributes) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes,
                     xml_text(text));
}

constexpr const char* kMiddle = " text-anchor=\"middle\"";

/// One SVG path per colour, in units of cells; adjacent cells of one colour in a row are merged.
std::string cells_of(const Placed& placed, const LoadScale& scale, size_t first, size_t end_row) {
  std::map<int64_t, std::string> paths;
  for (size_t row = first; row < end_row; ++row) {
    std::vector<int64_t> levels;
    for (const double share : placed.panel.share[row]) levels.push_back(scale.level(share));
    for (size_t begin = 0; begin < levels.size();) {
      size_t end = begin + 1;
      while (end < levels.size() && levels[end] == levels[begin]) ++end;
      paths[levels[begin]] +=
          fmt::format("M{} {}h{}v1h-{}z", begin, row - first, end - begin, end - begin);
      begin = end;
    }
  }
  std::string svg =
      fmt::format("<g transform=\"translate({} {:.1f}) scale({:.6f} {:.6f})\">\n", kLeft,
                  placed.row_top(first), placed.column_width(), placed.row_height());
  for (const auto& [level, path] : paths) {
    svg += fmt::format("<path fill=\"{}\" d=\"{}\"/>\n", colour_of(level), path);
  }
  return svg + "</g>\n";
}

std::string step_axis(const LoadPanel& panel, double column_width, double bottom) {
  constexpr size_t kMostLabels = 7;
  std::string svg;
  const size_t columns = panel.num_columns();
  const size_t labels = std::min(columns, kMostLabels);
  for (size_t i = 0; i < labels; ++i) {
    const size_t column = labels == 1 ? 0 : i * (columns - 1) / (labels - 1);
    const double x = kLeft + (static_cast<double>(column) + 0.5) * column_width;
    svg += fmt::format("<path stroke=\"#222\" d=\"M{:.1f} {:.1f}v4\"/>\n", x, bottom);
    svg += text_at(x, bottom + 16, std::to_string(panel.column_steps[column]), kMiddle);
  }
  return svg + text_at(kLeft + kPlotWidth / 2, bottom + 33, "logged step", kMiddle);
}

std::string row_numbers(const Placed& placed, size_t first, size_t end) {
  std::string svg;
  size_t stride = 1;
  while (static_cast<double>(stride) * placed.row_height() < kLabelHeight) stride *= 2;
  for (size_t row = first; row < end; row += stride) {
    svg += text_at(kLeft - 6, placed.row_top(row) + 0.5 * placed.row_height() + 4,
                   std::to_string(placed.panel.row_offsets[row]), " text-anchor=\"end\"");
  }
  return svg;
}

/// Rows of experts or memory units, labelled if the layer has both.
std::string rows_svg(const Placed& placed, const LoadScale& scale, size_t first, size_t end) {
  if (first == end && placed.panel.num_rows() > 0) return "";
  const double top = placed.row_top(first);
  const double height = placed.row_height() * static_cast<double>(end - first);
  std::string svg = cells_of(placed, scale, first, end);
  svg += fmt::format(
      "<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"none\" "
      "stroke=\"#222\"/>\n",
      kLeft, top, kPlotWidth, height);
  svg += row_numbers(placed, first, end);
  if (!placed.panel.has_both_kinds()) return svg;
  const bool is_memory = first >= placed.panel.num_expert_rows;
  return svg + text_at(kLeft + kPlotWidth + 10, top + std::min(height / 2 + 4, height),
                       is_memory ? "memory units" : "experts", "");
}

/// The colour scale.
std::string legend(const LoadScale& scale, double top) {
  constexpr double kBar = 320, kHeight = 14, kLegendGap = 66;
  const double left = kLeft + kLegendGap;
  std::string svg =
      fmt::format("<rect x=\"{}\" y=\"{}\" width=\"18\" height=\"{}\" fill=\"{}\"/>\n", kLeft, top,
                  kHeight, colour_of(LoadScale::kNothing));
  svg += text_at(kLeft + 9, top + 28, "0", kMiddle);
  const double width = kBar / static_cast<double>(LoadScale::kLevels);
  for (int64_t level = 0; level < LoadScale::kLevels; ++level) {
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n",
                       left + static_cast<double>(level) * width, top, width + 0.5, kHeight,
                       colour_of(level));
  }
  for (const ScaleTick& tick : scale.ticks()) {
    svg += text_at(left + kBar * tick.place, top + 28, tick.label, kMiddle);
  }
  return svg +
         text_at(left + kBar + 34, top + 12, "share of the layer's choices over an even share", "");
}

std::string panel_svg(const Placed& placed, const LoadScale& scale) {
  const LoadPanel& panel = placed.panel;
  std::string svg =
      text_at(kLeft, placed.top - kPanelTitle + 14, panel.layer, " font-weight=\"bold\"");
  svg += rows_svg(placed, scale, 0, panel.num_expert_rows);
  svg += rows_svg(placed, scale, panel.num_expert_rows, panel.num_rows());
  const double middle = placed.top + placed.height() / 2;
  svg += text_at(30, middle, "unit",
                 fmt::format("{} transform=\"rotate(-90 30 {:.1f})\"", kMiddle, middle));
  return svg + step_axis(panel, placed.column_width(), placed.top + placed.height());
}

}  // namespace

std::string heat_map_svg(const std::string& title, const std::vector<LoadHistory>& layers) {
  std::vector<LoadPanel> panels;
  for (const LoadHistory& layer : layers) panels.push_back(make_load_panel(layer));
  const LoadScale scale(panels);
  std::string body;
  double top = kHeader;
  for (LoadPanel& panel : panels) {
    const Placed placed{std::move(panel), top + kPanelTitle};
    body += panel_svg(placed, scale);
    top = placed.top + placed.height() + kPanelFooter;
  }
  std::string svg = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\" "
      "shape-rendering=\"crispEdges\">\n<title>{2}</title>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, top, xml_text(title));
  svg += text_at(kLeft, 28, title, " font-size=\"16\" font-weight=\"bold\"");
  return svg + legend(scale, 48) + body + "</svg>\n";
}

}  // namespace shoal
