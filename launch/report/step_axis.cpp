#include "launch/report/step_axis.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "launch/report/axis.h"

namespace shoal {

std::string step_axis_svg(double last_step, double bottom) {
  std::string marks, labels;
  labels = fmt::format("<text class=\"soft\" x=\"{}\" y=\"{:g}\" text-anchor=\"end\">step</text>\n",
                       kPlotLeft - 10, bottom + 18);
  for (const ScaleTick& tick : Axis(0.0, last_step, Quantity::kPlain).ticks(4)) {
    const double x = std::lerp(kPlotLeft, kPlotRight, tick.place);
    marks += fmt::format("M{:.1f} {:g}v4", x, bottom);
    const bool is_last = tick.place > 0.97;
    labels += fmt::format("<text x=\"{:.1f}\" y=\"{:g}\" text-anchor=\"{}\">{}</text>\n",
                          is_last ? kPlotRight + 6 : x, bottom + 18, is_last ? "end" : "middle",
                          tick.label);
  }
  return fmt::format("<path class=\"axis\" d=\"M{} {:g}H{}{}\"/>\n{}", kPlotLeft, bottom,
                     kPlotRight, marks, labels);
}

std::vector<StepSpan> spans_of(const std::vector<StepSpan>& logged) {
  std::vector<double> distance;
  for (size_t i = 0; i < logged.size(); ++i) {
    distance.push_back(logged[i].begin - (i > 0 ? logged[i - 1].end : 0.0));
  }
  std::vector<StepSpan> spans;
  for (size_t i = 0; i < logged.size(); ++i) {
    double most = logged.size() == 1 ? distance[i] : 0.0;
    if (i > 0) most = distance[i - 1];
    if (i + 1 < logged.size()) most = std::max(most, distance[i + 1]);
    spans.push_back({logged[i].begin - std::min(distance[i], most), logged[i].end});
  }
  return spans;
}

StepColumns::StepColumns(double last_step)
    : last_step_(std::max(1.0, last_step)),
      size_(static_cast<size_t>(std::min<int64_t>(kMost, std::llround(std::ceil(last_step_))))) {}

std::vector<double> StepColumns::means(const std::vector<StepSpan>& spans,
                                       const std::vector<double>& value) const {
  std::vector<double> sum(size_, 0.0), steps(size_, 0.0);
  for_each_overlap(spans, [&](size_t column, size_t i, double overlap) {
    if (!std::isfinite(value[i])) return;
    sum[column] += overlap * value[i];
    steps[column] += overlap;
  });
  for (size_t column = 0; column < size_; ++column) {
    sum[column] =
        steps[column] > 0 ? sum[column] / steps[column] : std::numeric_limits<double>::quiet_NaN();
  }
  return sum;
}

}  // namespace shoal
