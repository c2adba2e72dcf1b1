#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

// Left and right edge of plots over steps, in SVG pixels.
constexpr double kPlotLeft = 54, kPlotRight = 390;

/// SVG of a step axis from 0 to `last_step`, with round tick labels, below a plot's edge `bottom`.
std::string step_axis_svg(double last_step, double bottom);

/// A range of steps (begin, end].
struct StepSpan {
  double begin = 0, end = 0;
};

/// Returns the range of steps that each logged value stands for. `logged`, ascending: `begin` and
/// `end` are the first and last step that a value averages, both included. A range runs from the
/// end of the previous value, or 0, to the value's own end. If the gap before a value is longer
/// than the gaps before both neighbours, records are missing; the range then covers only the end of
/// the gap, as much as the longer of these two gaps. So values at steps 10, 20, 50 and 60 stand for
/// (0, 10], (10, 20], (40, 50] and (50, 60].
std::vector<StepSpan> spans_of(const std::vector<StepSpan>& logged);

/// Columns of a heat map over steps: equal parts of 0 to `last_step`, one per step, at most kMost.
class StepColumns {
 public:
  static constexpr int64_t kMost = 200;

  explicit StepColumns(double last_step);
  size_t size() const { return size_; }
  double last_step() const { return last_step_; }
  /// Last step of a column.
  double end(size_t column) const { return width() * static_cast<double>(column + 1); }

  /// Calls `use(column, i, steps)` for each column and spans[i] with `steps` > 0 in common.
  template <class Use>
  void for_each_overlap(const std::vector<StepSpan>& spans, const Use& use) const {
    for (size_t i = 0; i < spans.size(); ++i) {
      auto column = static_cast<size_t>(std::max(0.0, spans[i].begin / width()));
      for (; column < size_ && end(column) - width() < spans[i].end; ++column) {
        const double steps =
            std::min(spans[i].end, end(column)) - std::max(spans[i].begin, end(column) - width());
        if (steps > 0) use(column, i, steps);
      }
    }
  }
  /// Mean of each column, NaN without values. `value` has one entry per span; NaN: none.
  std::vector<double> means(const std::vector<StepSpan>& spans,
                            const std::vector<double>& value) const;

 private:
  double width() const { return last_step_ / static_cast<double>(size_); }

  double last_step_;
  size_t size_;
};

}  // namespace shoal
