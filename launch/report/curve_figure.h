#pragma once

#include <string>
#include <vector>

#include "launch/report/known_metrics.h"
#include "launch/runs/curve.h"

namespace shoal {

/// One curve of a figure.
struct FigureLine {
  std::string label;  ///< legend text
  const Curve* curve = nullptr;
  size_t colour = 0;  ///< index of the colour, below kNumCurveColours
};

/// A figure of the report: curves of one metric over steps, with a legend if there are several.
struct CurveFigure {
  std::string title;
  Quantity quantity = Quantity::kPlain;
  std::vector<FigureLine> lines;
  std::vector<double> marks = {};  ///< steps of dashed vertical lines, which mark resumes
  double last_step = 0;            ///< the step axis covers at least 0 to last_step
};

/// HTML of a figure: an SVG with title and description for screen readers, and a caption.
///
/// A curve of up to 500 points is drawn as a line through them. A longer one is drawn as a line of
/// means within a band of ranges, over at most 240 columns. If there are several curves, this
/// applies from 121 points on, with at most 100 columns. The value axis is logarithmic if all
/// values are positive and the largest is more than 50 times the median. Values that are not finite
/// leave gaps. `id` must be unique in the page.
std::string curve_figure_html(const CurveFigure& figure, const std::string& id);

/// True if a curve is drawn as means and ranges, in a figure of `num_lines` curves.
bool has_range(const Curve& curve, size_t num_lines);

/// CSS of figures: layout, and colours of lines and legend entries in the classes l0, k0 and so on
/// up to the last colour. Muted text uses the custom property --soft.
std::string curve_style();
constexpr size_t kNumCurveColours = 8;

}  // namespace shoal
