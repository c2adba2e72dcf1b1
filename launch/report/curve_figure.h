#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/report/known_metrics.h"
#include "launch/runs/curve.h"

namespace shoal {

/// One curve of a figure.
struct FigureLine {
  std::string label;  ///< text in the legend
  const Curve* curve = nullptr;
  size_t colour = 0;  ///< index in the page's list of colours
};

/// A picture of curves of one quantity over steps, with a legend if there are several.
struct CurveFigure {
  std::string title;
  Quantity quantity = Quantity::kPlain;
  std::vector<FigureLine> lines;
  std::vector<double> marks = {};  ///< steps marked by a dashed line: resumes
  double last_step = 0;            ///< the step axis ends here, or later if curves do
};

/// The HTML of a figure: an SVG with a name and description for screen readers, and its caption.
///
/// Curves of up to 500 points are drawn as lines. Longer ones show mean and range in up to 240
/// columns, with several curves those of more than 120 points in up to 100 columns. The scale is
/// logarithmic if all values are positive and the largest is more than 50 times the median. Values
/// that are not finite leave gaps. `id` must be unique in the page.
std::string curve_figure_html(const CurveFigure& figure, const std::string& id);

/// True if the figure, of `num_lines` curves, shows a curve's mean and range and not its points.
bool has_range(const Curve& curve, size_t num_lines);

/// CSS of figures, with the colours of lines and legends as classes l0, l1, … and k0, k1, …; the
/// custom property --soft is the colour of muted text.
std::string curve_style();
constexpr size_t kNumCurveColours = 8;

}  // namespace shoal
