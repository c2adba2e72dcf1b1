#include "launch/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

// Lengths are in SVG's pixels.
namespace shoal {
namespace {

constexpr size_t kMostColumns = 200, kMostRows = 128;
constexpr double kLeft = 84, kPlotWidth = 720, kWidth = 840;
constexpr double kHeader = 106, kPanelTitle = 22, kPanelFooter = 58;
constexpr double kLabelHeight = 14;
constexpr int64_t kLevels = 64;
constexpr int64_t kNothing = -1;  ///< level of a load of zero
constexpr double kOctaves = 2;    ///< the scale goes from 2^-kOctaves to 2^kOctaves

Rgb rgb_of(int64_t level) {
  if (level == kNothing) return {0, 0, 0};
  return viridis(static_cast<double>(level) / (kLevels - 1));
}

std::string colour_of(int64_t level) { return hex_colour(rgb_of(level)); }

int64_t level_of(double share_over_even) {
  if (!(share_over_even > 0)) return kNothing;
  const double place = (std::log2(share_over_even) + kOctaves) / (2 * kOctaves);
  return std::lround(std::clamp(place, 0.0, 1.0) * (kLevels - 1));
}

/// Runs of neighbours, [size of result + 1] offsets: as many as there are, or `most` about equally
/// long ones.
std::vector<size_t> cut(size_t count, size_t most) {
  const size_t num_runs = std::min(count, most);
  std::vector<size_t> offsets{0};
  for (size_t run = 1; run <= num_runs; ++run) offsets.push_back(run * count / num_runs);
  return offsets;
}

/// Loads as they are drawn.
struct Panel {
  std::vector<size_t> column_offsets, row_offsets;  ///< in steps, in experts
  std::vector<std::vector<int64_t>> level;          ///< [rows][columns]

  size_t num_columns() const { return column_offsets.size() - 1; }
  size_t num_rows() const { return row_offsets.size() - 1; }
  double row_height() const {
    return std::clamp(200.0 / static_cast<double>(std::max<size_t>(1, num_rows())), 2.0, 18.0);
  }
  double height() const { return row_height() * static_cast<double>(num_rows()); }
  double column_width() const {
    return kPlotWidth / static_cast<double>(std::max<size_t>(1, num_columns()));
  }
};

std::vector<double> shares_over_even(const std::vector<double>& load) {
  double total = 0.0;
  for (const double value : load) total += value;
  std::vector<double> shares(load.size(), 0.0);
  for (size_t u = 0; total > 0 && u < load.size(); ++u) {
    shares[u] = load[u] * static_cast<double>(load.size()) / total;
  }
  return shares;
}

Panel make_panel(const LoadHistory& layer) {
  size_t num_experts = 0;
  for (const auto& load : layer.load) num_experts = std::max(num_experts, load.size());
  Panel panel;
  panel.column_offsets = cut(layer.steps.size(), kMostColumns);
  panel.row_offsets = cut(num_experts, kMostRows);
  const size_t rows = panel.num_rows(), columns = panel.num_columns();
  std::vector<std::vector<double>> sum(rows, std::vector<double>(columns, 0.0));
  std::vector<std::vector<double>> count = sum;
  for (size_t column = 0; column < columns; ++column) {
    for (size_t s = panel.column_offsets[column]; s < panel.column_offsets[column + 1]; ++s) {
      const std::vector<double> shares = shares_over_even(layer.load[s]);
      size_t row = 0;
      for (size_t expert = 0; expert < shares.size(); ++expert) {
        while (expert >= panel.row_offsets[row + 1]) ++row;
        sum[row][column] += shares[expert];
        ++count[row][column];
      }
    }
  }
  for (size_t row = 0; row < rows; ++row) {
    panel.level.emplace_back();
    for (size_t column = 0; column < columns; ++column) {
      panel.level[row].push_back(level_of(sum[row][column] / count[row][column]));
    }
  }
  return panel;
}

std::string text_at(double x, double y, const std::string& text, const std::string& attributes) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes,
                     xml_text(text));
}

constexpr const char* kMiddle = " text-anchor=\"middle\"";

/// One path a colour, in units of cells; neighbours of one colour in a row are drawn as one.
std::string cells_of(const Panel& panel, double top) {
  std::map<int64_t, std::string> paths;
  for (size_t row = 0; row < panel.level.size(); ++row) {
    const std::vector<int64_t>& levels = panel.level[row];
    for (size_t begin = 0; begin < levels.size();) {
      size_t end = begin + 1;
      while (end < levels.size() && levels[end] == levels[begin]) ++end;
      paths[levels[begin]] += fmt::format("M{} {}h{}v1h-{}z", begin, row, end - begin, end - begin);
      begin = end;
    }
  }
  std::string svg = fmt::format("<g transform=\"translate({} {}) scale({:.6f} {:.6f})\">\n", kLeft,
                                top, panel.column_width(), panel.row_height());
  for (const auto& [level, path] : paths) {
    svg += fmt::format("<path fill=\"{}\" d=\"{}\"/>\n", colour_of(level), path);
  }
  return svg + "</g>\n";
}

std::string step_axis(const LoadHistory& layer, const Panel& panel, double bottom) {
  constexpr size_t kMostLabels = 7;
  std::string svg;
  const size_t columns = panel.num_columns();
  const size_t labels = std::min(columns, kMostLabels);
  for (size_t i = 0; i < labels; ++i) {
    const size_t column = labels == 1 ? 0 : i * (columns - 1) / (labels - 1);
    const double x = kLeft + (static_cast<double>(column) + 0.5) * panel.column_width();
    const int64_t last_step = layer.steps[panel.column_offsets[column + 1] - 1];
    svg += fmt::format("<path stroke=\"#222\" d=\"M{:.1f} {:.1f}v4\"/>\n", x, bottom);
    svg += text_at(x, bottom + 16, std::to_string(last_step), kMiddle);
  }
  return svg + text_at(kLeft + kPlotWidth / 2, bottom + 33, "logged step", kMiddle);
}

std::string unit_axis(const Panel& panel, double top) {
  std::string svg;
  const double height = panel.row_height();
  size_t stride = 1;
  while (static_cast<double>(stride) * height < kLabelHeight) stride *= 2;
  for (size_t row = 0; row < panel.num_rows(); row += stride) {
    svg += text_at(kLeft - 6, top + (static_cast<double>(row) + 0.5) * height + 4,
                   std::to_string(panel.row_offsets[row]), " text-anchor=\"end\"");
  }
  const double middle = top + panel.height() / 2;
  return svg + text_at(30, middle, "unit",
                       fmt::format("{} transform=\"rotate(-90 30 {:.1f})\"", kMiddle, middle));
}

/// The colour scale.
std::string legend(double top) {
  constexpr double kBar = 320, kHeight = 14, kGap = 66;
  const double left = kLeft + kGap;
  std::string svg =
      fmt::format("<rect x=\"{}\" y=\"{}\" width=\"18\" height=\"{}\" fill=\"{}\"/>\n", kLeft, top,
                  kHeight, colour_of(kNothing));
  svg += text_at(kLeft + 9, top + 28, "0", kMiddle);
  const double width = kBar / static_cast<double>(kLevels);
  for (int64_t level = 0; level < kLevels; ++level) {
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n",
                       left + static_cast<double>(level) * width, top, width + 0.5, kHeight,
                       colour_of(level));
  }
  const std::array<const char*, 5> labels{"1/4 or less", "1/2", "1 (even)", "2", "4 or more"};
  for (size_t i = 0; i < labels.size(); ++i) {
    svg += text_at(left + kBar * static_cast<double>(i) / 4, top + 28, labels[i], kMiddle);
  }
  return svg +
         text_at(left + kBar + 20, top + 12, "share of the layer's choices over an even share", "");
}

std::string panel_svg(const LoadHistory& layer, const Panel& panel, double top) {
  std::string svg = text_at(kLeft, top + 14, layer.layer, " font-weight=\"bold\"");
  const double plot = top + kPanelTitle;
  svg += cells_of(panel, plot);
  svg += fmt::format(
      "<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"none\" "
      "stroke=\"#222\"/>\n",
      kLeft, plot, kPlotWidth, panel.height());
  return svg + unit_axis(panel, plot) + step_axis(layer, panel, plot + panel.height());
}

}  // namespace

std::string heat_map_svg(const std::string& title, const std::vector<LoadHistory>& layers) {
  std::string body;
  double top = kHeader;
  for (const LoadHistory& layer : layers) {
    const Panel panel = make_panel(layer);
    body += panel_svg(layer, panel, top);
    top += kPanelTitle + panel.height() + kPanelFooter;
  }
  std::string svg = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\" "
      "shape-rendering=\"crispEdges\">\n<title>{2}</title>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, top, xml_text(title));
  svg += text_at(kLeft, 28, title, " font-size=\"16\" font-weight=\"bold\"");
  return svg + legend(48) + body + "</svg>\n";
}

Picture load_picture(const std::vector<std::vector<double>>& load) {
  constexpr size_t kMostUnitColumns = 256;
  size_t num_units = 0;
  for (const auto& layer : load) num_units = std::max(num_units, layer.size());
  const std::vector<size_t> rows = cut(load.size(), kMostRows);
  const std::vector<size_t> columns = cut(num_units, kMostUnitColumns);
  Picture picture{std::ssize(columns) - 1, std::ssize(rows) - 1, {}};
  for (size_t row = 0; row + 1 < rows.size(); ++row) {
    std::vector<double> sum(columns.size() - 1, 0.0), count = sum;
    for (size_t layer = rows[row]; layer < rows[row + 1]; ++layer) {
      const std::vector<double> shares = shares_over_even(load[layer]);
      size_t column = 0;
      for (size_t unit = 0; unit < shares.size(); ++unit) {
        while (unit >= columns[column + 1]) ++column;
        sum[column] += shares[unit];
        ++count[column];
      }
    }
    for (size_t column = 0; column < sum.size(); ++column) {
      const bool has_unit = count[column] > 0;
      picture.pixels.push_back(has_unit ? rgb_of(level_of(sum[column] / count[column]))
                                        : Rgb{255, 255, 255});
    }
  }
  return enlarge_small(picture, 512);
}

std::string xml_text(const std::string& text) {
  static const std::map<char, std::string> kMarkup{
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
  std::string result;
  for (const char c : text) {
    const auto markup = kMarkup.find(c);
    const char shown = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    result += markup == kMarkup.end() ? std::string(1, shown) : markup->second;
  }
  return result;
}

}  // namespace shoal
