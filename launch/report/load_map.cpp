#include "launch/report/load_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "launch/pages/page.h"

// Lengths are in SVG pixels.
namespace shoal {
namespace {

constexpr size_t kMostRows = 128;
constexpr double kShareWithin = 0.99;  ///< of the shares, within the scale
constexpr std::array kLimits{1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0};
constexpr double kLeft = 84, kPlotWidth = 720, kWidth = 920, kHeader = 106, kFooter = 58;

/// Cuts `count` items into at most `most` runs of about equal length; returns offsets, [runs + 1].
std::vector<size_t> cut(size_t count, size_t most) {
  const size_t num_runs = std::min(count, most);
  std::vector<size_t> offsets{0};
  for (size_t run = 1; run <= num_runs; ++run) offsets.push_back(run * count / num_runs);
  return offsets;
}

std::vector<double> shares_over_even(const std::vector<double>& load) {
  const double total = std::accumulate(load.begin(), load.end(), 0.0);
  std::vector<double> shares(load.size(), 0.0);
  for (size_t u = 0; total > 0 && u < load.size(); ++u) {
    shares[u] = load[u] * static_cast<double>(load.size()) / total;
  }
  return shares;
}

std::string text_at(double x, double y, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, xml_text(text));
}

constexpr const char *kMiddle = " text-anchor=\"middle\"", *kEnd = " text-anchor=\"end\"";

/// The picture, stretched to a framed rectangle.
std::string picture_at(double x, double y, double width, double height, const Picture& picture) {
  const std::string box = fmt::format(
      "x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"", x, y, width, height);
  return fmt::format(
      "<image {0} preserveAspectRatio=\"none\" style=\"image-rendering: pixelated\" "
      "href=\"{1}\"/>\n<rect {0} fill=\"none\" stroke=\"#222\"/>\n",
      box, png_address(picture));
}

/// The colours, black for zero before them.
std::string legend_svg(const LoadScale& scale) {
  Picture colours{LoadScale::kLevels, 1, {}};
  for (int64_t i = 0; i < LoadScale::kLevels; ++i) colours.pixels.push_back(LoadScale::colour(i));
  const double left = kLeft + 66, width = 320, top = 48, below = top + 28;
  return picture_at(kLeft, top, 18, 14, {1, 1, {LoadScale::colour(LoadScale::kNothing)}}) +
         text_at(kLeft + 9, below, "0", kMiddle) + picture_at(left, top, width, 14, colours) +
         text_at(left, below, fmt::format("\u2264 {:.2f}", 1 / scale.limit()), kMiddle) +
         text_at(left + width / 2, below, "1 (even)", kMiddle) +
         text_at(left + width, below, fmt::format("\u2265 {:.2f}", scale.limit()), kMiddle) +
         text_at(left + width + 34, top + 12, "share of the layer's choices over an even share");
}

/// A layer's cells with its name, units and first and last step; moves `top` below it.
std::string panel_svg(const LayerLoads& layer, const std::vector<HeatRow>& rows,
                      const LoadScale& scale, double& top) {
  std::string svg = text_at(kLeft, top + 14, layer.layer, " font-weight=\"bold\"");
  top += 22;
  if (rows.empty()) return svg;
  const auto columns = std::ssize(rows.front().value);
  Picture cells{columns, std::ssize(rows), {}};
  const double height = std::clamp(200.0 / static_cast<double>(rows.size()), 2.0, 18.0);
  const auto stride = static_cast<size_t>(std::ceil(14 / height));
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const double share : rows[row].value) {
      cells.pixels.push_back(LoadScale::colour(scale.level(share)));
    }
    const double y = top + height * static_cast<double>(row);
    if (row % stride == 0) svg += text_at(kLeft - 6, y + height / 2 + 4, rows[row].label, kEnd);
    if (layer.memory_units > 0 && rows[row].label == std::to_string(layer.num_experts())) {
      svg += text_at(kLeft + kPlotWidth + 10, y + 12, "memory units");
    }
  }
  const double bottom = top + height * static_cast<double>(rows.size());
  svg += picture_at(kLeft, top, kPlotWidth, bottom - top, cells);
  svg += text_at(30, (top + bottom) / 2, "unit", kMiddle);
  const std::vector<double>& steps = rows.front().end;
  svg += text_at(kLeft, bottom + 16, fmt::format("{}", steps.front()), kMiddle);
  if (columns > 1) {
    svg += text_at(kLeft + kPlotWidth, bottom + 16, fmt::format("{}", steps.back()), kMiddle);
  }
  top = bottom + kFooter;
  return svg + text_at(kLeft + kPlotWidth / 2, bottom + 33, "logged step", kMiddle);
}

}  // namespace

std::vector<HeatRow> list_rows(const ListHistory& list, const std::string& kind, size_t split,
                               bool is_load) {
  size_t size = 0;
  for (const ListHistory::Column& column : list.columns()) size = std::max(size, column.sum.size());
  const size_t each = (size + kMostRows - 1) / kMostRows;
  std::vector<HeatRow> rows;
  for (size_t first = 0, end = 0; first < size; first = end) {
    end = std::min(first + each, first < split ? std::min(split, size) : size);
    const std::string name = end == first + 1 ? "" : fmt::format(" to {}", end - 1);
    rows.push_back({std::to_string(first), fmt::format("{} {}{}", kind, first, name), {}, {}, {}});
  }
  for (const ListHistory::Column& column : list.columns()) {
    std::vector<double> value = is_load ? shares_over_even(column.sum) : column.sum;
    value.resize(size, NAN);
    const double divisor = is_load ? 1.0 : static_cast<double>(column.count);
    auto from = value.begin();
    for (size_t row = 0; row < rows.size(); ++row) {
      const size_t next = row + 1 < rows.size() ? std::stoul(rows[row + 1].label) : size;
      const auto to = value.begin() + static_cast<std::ptrdiff_t>(next);
      rows[row].begin.push_back(static_cast<double>(column.first_step));
      rows[row].end.push_back(static_cast<double>(column.last_step));
      rows[row].value.push_back(std::accumulate(from, to, 0.0) / divisor /
                                static_cast<double>(to - from));
      from = to;
    }
  }
  return rows;
}

LoadScale::LoadScale(const std::vector<std::vector<HeatRow>>& layers) : limit_(kLimits.back()) {
  std::vector<double> distance;  // from the even share, in octaves
  for (const std::vector<HeatRow>& rows : layers) {
    for (const HeatRow& row : rows) {
      for (const double share : row.value) {
        if (share > 0) distance.push_back(std::abs(std::log2(share)));
      }
    }
  }
  if (distance.empty()) distance.push_back(0);
  const auto place =
      static_cast<size_t>(std::ceil(kShareWithin * static_cast<double>(distance.size() - 1)));
  const auto within = distance.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(distance.begin(), within, distance.end());
  const auto enough = std::ranges::find_if(
      kLimits, [&](double limit) { return std::log2(limit) >= *within - 1e-9; });
  if (enough != kLimits.end()) limit_ = *enough;
}

int64_t LoadScale::level(double share) const {
  if (!(share > 0)) return kNothing;
  const double place = std::clamp(std::log2(share) / std::log2(limit_), -1.0, 1.0);
  return std::lround((place + 1) / 2 * (kLevels - 1));
}

Rgb LoadScale::colour(int64_t level) {
  if (level == kNothing) return {0, 0, 0};
  return blue_to_red(2 * static_cast<double>(level) / (kLevels - 1) - 1);
}

Picture load_picture(const std::vector<std::vector<double>>& load) {
  constexpr size_t kMostUnitColumns = 256;
  const LoadScale scale(4.0);
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
      picture.pixels.push_back(has_unit
                                   ? LoadScale::colour(scale.level(sum[column] / count[column]))
                                   : Rgb{255, 255, 255});
    }
  }
  return enlarge_small(picture, 512);
}

std::string heat_map_svg(const std::string& title, const std::vector<LayerLoads>& layers) {
  std::vector<std::vector<HeatRow>> rows;
  for (const LayerLoads& layer : layers) {
    rows.push_back(list_rows(layer.load, "unit", layer.num_experts(), /*is_load=*/true));
  }
  const LoadScale scale(rows);
  double top = kHeader;
  std::string body;
  for (size_t i = 0; i < layers.size(); ++i) body += panel_svg(layers[i], rows[i], scale, top);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
      "<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{3}{4}{5}"
      "</svg>\n",
      kWidth, top, xml_text(title),
      text_at(kLeft, 28, title, " font-size=\"16\" font-weight=\"bold\""), legend_svg(scale), body);
}

}  // namespace shoal
