#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/report/known_metrics.h"
#include "launch/runs/curve.h"

namespace shoal {

/// One curve of a picture.
struct FigureLine {
  std::string label;  ///< in the legend
  const Curve* curve = nullptr;
  size_t colour = 0;  ///< place in the page's list of colours
};

/// A picture of curves of the same number over steps, with a legend where there are several.
struct CurveFigure {
  std::string title;
  Quantity quantity = Quantity::kPlain;
  std::vector<FigureLine> lines;
  std::vector<double> marks = {};  ///< steps at which a dashed line stands: resumes
  double last_step = 0;            ///< the step axis goes from 0 to here, or further
};

/// The HTML of a figure: an SVG, named and described for those who cannot see it, with its caption.
///
/// Up to 500 points of a curve are joined by a line. Of more, a line shows the mean and a band the
/// range within each of at most 240 columns; where there are several curves, of more than 120 in at
/// most 100 columns. The scale is logarithmic if all values are
/// positive and the largest is more than 50 times the median. Gaps are values that are not finite.
/// `id` is unique in the page.
std::string curve_figure_html(const CurveFigure& figure, const std::string& id);

/// Whether the figure shows a curve's mean and range instead of its points, among so many curves.
bool has_range(const Curve& curve, size_t num_lines);

/// CSS of figures: how they look, and colours of lines and of their legend, classes l0 and k0 to
/// those of the last colour. Muted text has the custom property --soft.
std::string curve_style();
constexpr size_t kNumCurveColours = 8;

}  // namespace shoal
