#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

// Of pictures over steps, in SVG's pixels.
constexpr double kPlotLeft = 54, kPlotRight = 390;

/// The axis below a picture whose lower edge is at `bottom`: from step 0 to `last_step`, with round
/// numbers.
std::string step_axis_svg(double last_step, double bottom);

/// Steps after `begin` up to `end`.
struct StepSpan {
  double begin = 0, end = 0;
};

/// The steps that logged values stand for: those since the value before, but after a gap no more
/// than lie between neighbouring values. `logged`: the first and the last step of each value,
/// ascending.
std::vector<StepSpan> spans_of(const std::vector<StepSpan>& logged);

/// The steps from 0 to a run's last one in equal parts, of which pictures have a column each: as
/// many as there are steps, 200 at most.
class StepColumns {
 public:
  static constexpr int64_t kMost = 200;

  explicit StepColumns(double last_step);
  size_t size() const { return size_; }
  double last_step() const { return last_step_; }
  /// The last step of a column.
  double end(size_t column) const { return width() * static_cast<double>(column + 1); }

  /// Calls `use(column, i, steps)` for each column of which spans[i] has some steps.
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
  /// The mean of each column; NaN where no value stands. One value a span, NaN: none.
  std::vector<double> means(const std::vector<StepSpan>& spans,
                            const std::vector<double>& value) const;

 private:
  double width() const { return last_step_ / static_cast<double>(size_); }

  double last_step_;
  size_t size_;
};

}  // namespace shoal
