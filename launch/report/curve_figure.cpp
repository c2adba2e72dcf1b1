#include "launch/report/curve_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "launch/pages/page.h"
#include "launch/report/axis.h"
#include "launch/report/step_axis.h"
#include "runtime/base/text.h"

// Lengths are in SVG pixels; paths have units of a tenth of a pixel.
namespace shoal {
namespace {

constexpr double kFigureWidth = 400, kFigureHeight = 190;
constexpr double kFigureTop = 10, kFigureBottom = 164;
/// Resolution of curves; lower if several curves would hide each other.
struct Detail {
  size_t most_points;  ///< that a line joins
  int64_t columns;     ///< with a mean and a range each, of longer curves
};
Detail detail_for(size_t num_lines) { return num_lines == 1 ? Detail{500, 240} : Detail{120, 100}; }
constexpr size_t kMostDots = 40;

/// Colours for the light and the dark page, with a contrast of at least 4.5.
constexpr std::array<const char*, kNumCurveColours> kLight{
    "#0b62a8", "#b04a00", "#147a3d", "#8a2f8f", "#a3123a", "#5c5c00", "#006d77", "#4b3fb0"};
constexpr std::array<const char*, kNumCurveColours> kDark{
    "#7cc0ff", "#ffab66", "#6fdc9c", "#e29bea", "#ff8fa8", "#d8d860", "#5fd4dd", "#b8aaff"};
constexpr std::array<const char*, kNumCurveColours> kDashes{"", "7 2", "3 2", "9 2 2 2",
                                                            "", "7 2", "3 2", "9 2 2 2"};

constexpr std::string_view kFigureStyle = R"(
:root { --soft: #595959; }
@media (prefers-color-scheme: dark) { :root { --soft: #b4b4b4; } }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; font-size: 14px; overflow-wrap: anywhere; }
.plot svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
.plot text { fill: var(--text); font-variant-numeric: tabular-nums; }
.plot path { fill: none; vector-effect: non-scaling-stroke; }
.plot path[class^=l] { stroke-width: 1.6; stroke-linejoin: round; }
.plot path[class^=b] { stroke: none; opacity: .2; }
.plot path.dot { stroke-width: 5; stroke-linecap: round; stroke-dasharray: none; }
.plot .soft { fill: var(--soft); }
.grid { stroke: var(--line); stroke-opacity: .35; }
.axis { stroke: var(--line); }
.mark { stroke: var(--text); stroke-dasharray: 3 3; stroke-opacity: .7; }
.values, .legend { font-size: 13px; margin: 2px 0 0; color: var(--soft);
  font-variant-numeric: tabular-nums; }
.values b, .legend b { color: var(--text); }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 0 16px;
  overflow-wrap: anywhere; }
.key { display: inline-block; width: 22px; border-top-width: 3px; vertical-align: 4px;
  margin-right: 6px; }
)";

double last_step_in(const CurveFigure& figure) {
  double last = std::max(1.0, figure.last_step);
  for (const FigureLine& line : figure.lines) {
    for (const Curve::Bucket& bucket : line.curve->buckets())
      last = std::max(last, bucket.last_step);
  }
  return last;
}

double median_of(const CurveFigure& figure) {
  std::vector<double> means;
  for (const FigureLine& line : figure.lines) {
    for (const Curve::Bucket& bucket : line.curve->buckets()) {
      if (bucket.count > 0) means.push_back(bucket.mean());
    }
  }
  const auto middle = means.begin() + std::ssize(means) / 2;
  std::nth_element(means.begin(), middle, means.end());
  return *middle;
}

Axis value_axis(const CurveFigure& figure) {
  constexpr double kMuchLarger = 50;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const FigureLine& line : figure.lines) {
    low = std::min(low, line.curve->lowest().value);
    high = std::max(high, line.curve->highest().value);
  }
  if (low > 0 && high > kMuchLarger * median_of(figure)) {
    return {low, high, figure.quantity, /*logarithmic=*/true};
  }
  // Includes zero if it is near.
  const double span = high - low, margin = 0.03 * span;
  if (low > 0 && low < 0.5 * span) low = 0;
  if (low != 0) low -= margin;
  return {low, high + margin, figure.quantity};
}

/// SVG path through points, in tenths of a pixel, each relative to the one before.
class Path {
 public:
  void move_to(double x, double y) { add('M', std::lround(10 * x), std::lround(10 * y), true); }
  void line_to(double x, double y) { add('l', std::lround(10 * x), std::lround(10 * y), false); }
  void close() {
    text_ += 'z';
    last_command_ = 'z';
  }
  const std::string& text() const { return text_; }

 private:
  void add(char command, int64_t x, int64_t y, bool is_absolute) {
    const int64_t dx = is_absolute ? x : x - x_, dy = is_absolute ? y : y - y_;
    const bool repeats = command == last_command_ && command == 'l';
    if (repeats && dx == 0 && dy == 0) return;
    if (!repeats) text_ += command;
    text_ += fmt::format("{}{}{}{}", repeats && dx >= 0 ? " " : "", dx, dy >= 0 ? " " : "", dy);
    last_command_ = command;
    x_ = x;
    y_ = y;
  }

  std::string text_;
  char last_command_ = 0;
  int64_t x_ = 0, y_ = 0;
};

/// Maps steps and values to positions in the plot.
struct Frame {
  double last_step;
  Axis y;
  Detail detail;

  double left_of(double step) const {
    return std::lerp(kPlotLeft, kPlotRight, std::min(1.0, step / last_step));
  }
  double top_of(double value) const { return std::lerp(kFigureBottom, kFigureTop, y.place(value)); }
};

bool is_longer(const Curve& curve, const Detail& detail) {
  return !curve.is_whole() || curve.buckets().size() > detail.most_points;
}

double middle_of(const Curve::Bucket& bucket) {
  return std::midpoint(bucket.first_step, bucket.last_step);
}

/// Buckets of a curve as drawn, merged if many share a column.
std::vector<Curve::Bucket> drawn_buckets(const Curve& curve, const Frame& frame) {
  const int64_t columns = frame.detail.columns;
  if (!is_longer(curve, frame.detail)) return curve.buckets();
  std::vector<Curve::Bucket> drawn;
  int64_t last_column = -1;
  for (const Curve::Bucket& bucket : curve.buckets()) {
    const double middle = middle_of(bucket);
    const auto column = std::min(
        columns - 1, static_cast<int64_t>(middle / frame.last_step * static_cast<double>(columns)));
    if (column != last_column) {
      drawn.push_back(bucket);
    } else {
      drawn.back().join(bucket);
    }
    last_column = column;
  }
  return drawn;
}

/// Calls `use` with each run of consecutive buckets that have values.
template <class Use>
void for_each_run(const std::vector<Curve::Bucket>& buckets, const Use& use) {
  for (size_t begin = 0; begin < buckets.size();) {
    size_t end = begin;
    while (end < buckets.size() && buckets[end].count > 0) ++end;
    if (end > begin) use(begin, end);
    begin = end + 1;
  }
}

std::string band_svg(const std::vector<Curve::Bucket>& buckets, const Frame& frame) {
  Path path;
  for_each_run(buckets, [&](size_t begin, size_t end) {
    path.move_to(frame.left_of(middle_of(buckets[begin])), frame.top_of(buckets[begin].high));
    for (size_t i = begin + 1; i < end; ++i) {
      path.line_to(frame.left_of(middle_of(buckets[i])), frame.top_of(buckets[i].high));
    }
    for (size_t i = end; i-- > begin;) {
      path.line_to(frame.left_of(middle_of(buckets[i])), frame.top_of(buckets[i].low));
    }
    path.close();
  });
  return path.text();
}

std::string line_svg(const FigureLine& line, const Frame& frame) {
  const std::vector<Curve::Bucket> buckets = drawn_buckets(*line.curve, frame);
  const bool has_band =
      std::ranges::any_of(buckets, [](const Curve::Bucket& bucket) { return bucket.count > 1; });
  const size_t colour = line.colour % kNumCurveColours;
  std::string svg;
  if (has_band) {
    svg += fmt::format("<path class=\"b{}\" d=\"{}\"/>\n", colour, band_svg(buckets, frame));
  }
  Path path, dots;
  const bool has_dots = buckets.size() <= kMostDots;
  for_each_run(buckets, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const double x = frame.left_of(middle_of(buckets[i])), y = frame.top_of(buckets[i].mean());
      i == begin ? path.move_to(x, y) : path.line_to(x, y);
      if (!has_dots && end > begin + 1) continue;
      dots.move_to(x, y);
      dots.line_to(x + 0.1, y);
    }
  });
  svg += fmt::format("<path class=\"l{}\" d=\"{}\"/>\n", colour, path.text());
  if (!dots.text().empty()) {
    svg += fmt::format("<path class=\"l{} dot\" d=\"{}\"/>\n", colour, dots.text());
  }
  return svg;
}

std::string axes_svg(const Frame& frame) {
  std::string lines, labels;
  for (const ScaleTick& tick : frame.y.ticks(4)) {
    const double y = std::lerp(kFigureBottom, kFigureTop, tick.place);
    lines += fmt::format("M{} {:.1f}H{}", kPlotLeft, y, kPlotRight);
    labels += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                          kPlotLeft - 6, y + 4, tick.label);
  }
  return fmt::format("<path class=\"grid\" d=\"{}\"/>\n{}{}", lines,
                     step_axis_svg(frame.last_step, kFigureBottom), labels);
}

std::string marks_svg(const CurveFigure& figure, const Frame& frame) {
  std::string svg;
  for (const double step : figure.marks) {
    svg += fmt::format("<path class=\"mark\" d=\"M{:.1f} {}V{}\"/>\n", frame.left_of(step),
                       kFigureTop, kFigureBottom);
  }
  return svg;
}

std::string point_text(const Curve::Point& point, Quantity quantity) {
  return fmt::format("{} at step {}", value_text(point.value, quantity), grouped(point.step));
}

/// One-sentence description of a curve for screen readers.
std::string sentence(const Curve& curve, Quantity quantity) {
  std::string text = fmt::format("{}, then {}", point_text(curve.first(), quantity),
                                 point_text(curve.last(), quantity));
  if (curve.num_finite() == 1) text = point_text(curve.last(), quantity);
  if (curve.num_finite() > 2) {
    text += fmt::format("; lowest {}, highest {}", point_text(curve.lowest(), quantity),
                        point_text(curve.highest(), quantity));
  }
  return text;
}

std::string description(const CurveFigure& figure) {
  std::string text;
  for (const FigureLine& line : figure.lines) {
    const std::string label = figure.lines.size() > 1 ? line.label + ": " : "";
    text += fmt::format("{}{}. ", label, sentence(*line.curve, figure.quantity));
  }
  return text;
}

std::string gaps_text(const CurveFigure& figure) {
  int64_t gaps = 0;
  for (const FigureLine& line : figure.lines) gaps += line.curve->num_not_finite();
  if (gaps == 0) return "";
  return fmt::format("<br>{} not finite",
                     gaps == 1 ? "1 value is" : fmt::format("{} values are", gaps));
}

/// Text below the plot: the last and extreme values of a single curve, or the legend of several.
std::string legend_html(const CurveFigure& figure) {
  if (figure.lines.size() == 1) {
    const Curve& curve = *figure.lines.front().curve;
    const std::string last = value_text(curve.last().value, figure.quantity);
    if (curve.num_finite() == 1) {
      return fmt::format("<p class=\"values\">{} at step {}</p>\n", last,
                         grouped(curve.last().step));
    }
    return fmt::format("<p class=\"values\">last <b>{}</b>, lowest {}, highest {}{}</p>\n", last,
                       value_text(curve.lowest().value, figure.quantity),
                       value_text(curve.highest().value, figure.quantity), gaps_text(figure));
  }
  std::string items;
  for (const FigureLine& line : figure.lines) {
    items += fmt::format("<li><span class=\"key k{}\"></span>{} <b>{}</b></li>\n",
                         line.colour % kNumCurveColours, xml_text(line.label),
                         value_text(line.curve->last().value, figure.quantity));
  }
  return fmt::format("<ul class=\"legend\">\n{}</ul>\n{}", items,
                     gaps_text(figure).empty()
                         ? ""
                         : "<p class=\"values\">" + gaps_text(figure).substr(4) + "</p>\n");
}

}  // namespace

std::string curve_figure_html(const CurveFigure& figure, const std::string& id) {
  const Frame frame{last_step_in(figure), value_axis(figure), detail_for(figure.lines.size())};
  std::string svg = fmt::format(
      "<figure class=\"plot\"><figcaption>{1}{2}</figcaption>\n"
      "<svg viewBox=\"0 0 {3} {4}\" role=\"img\" aria-labelledby=\"{0}t\" "
      "aria-describedby=\"{0}d\">\n<title id=\"{0}t\">{1} over steps</title>\n"
      "<desc id=\"{0}d\">{5}</desc>\n",
      id, xml_text(figure.title), frame.y.is_logarithmic() ? " (logarithmic)" : "", kFigureWidth,
      kFigureHeight, xml_text(description(figure)));
  svg += axes_svg(frame) + marks_svg(figure, frame) + "<g transform=\"scale(.1)\">\n";
  for (const FigureLine& line : figure.lines) svg += line_svg(line, frame);
  return svg + "</g></svg>\n" + legend_html(figure) + "</figure>\n";
}

bool has_range(const Curve& curve, size_t num_lines) {
  return is_longer(curve, detail_for(num_lines));
}

std::string curve_style() {
  std::string light, dark, classes;
  for (size_t i = 0; i < kNumCurveColours; ++i) {
    light += fmt::format("--c{}: {}; ", i, kLight[i]);
    dark += fmt::format("--c{}: {}; ", i, kDark[i]);
    classes += fmt::format(
        ".plot .l{0} {{ stroke: var(--c{0}); {1}}}\n.plot .b{0} {{ fill: var(--c{0}); }}\n"
        ".k{0} {{ border-color: var(--c{0}); border-top-style: {2}; }}\n",
        i, *kDashes[i] ? fmt::format("stroke-dasharray: {}; ", kDashes[i]) : "",
        *kDashes[i] ? (kDashes[i][0] == '3' ? "dotted" : "dashed") : "solid");
  }
  return fmt::format(":root {{ {}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {}}} }}\n{}{}",
                     light, dark, classes, kFigureStyle);
}

}  // namespace shoal
