#pragma once

#include <string>
#include <vector>

#include "launch/pages/page.h"
#include "launch/report/known_metrics.h"
#include "launch/runs/curve.h"

namespace shoal {

/// One curve of a figure.
struct FigureLine {
  std::string name;  ///< in legend and table
  const Curve* curve = nullptr;
  size_t run = 0;              ///< index of the page's run
  bool is_evaluation = false;  ///< drawn with points
};

/// A figure of curves over steps: a metric of runs or of layers.
struct CurveFigure {
  std::string key;  ///< of the metric
  MetricInfo info;
  std::vector<FigureLine> lines = {};
  bool is_by_run = false;  ///< a line has the colour of its run, if there are several

  /// True if all values of all curves are equal.
  bool is_constant() const;
};

/// Adds a curve, if it has finite values, to the figure of its key.
void add_line(std::vector<CurveFigure>& figures, const FigureLine& line);

/// Adds a figure with its table. A curve of up to `most_points` points is shown as logged; a longer
/// one as means and ranges of so many neighbours that this takes about as many numbers.
void add_curves(Page& page, const CurveFigure& figure, size_t most_points);

/// Neighbouring buckets joined, to at most `most`.
std::vector<Curve::Bucket> joined_buckets(const std::vector<Curve::Bucket>& buckets, size_t most);

/// A row of a heat map: values, NaN without, which stand for the steps from `begin` to `end`.
struct HeatRow {
  std::string label, name;  ///< a short one beside the row, a full one in the table
  std::vector<double> begin, end, value;
};

/// A heat map of rows over steps of a run.
struct HeatFigure {
  std::string title;
  Quantity quantity = Quantity::kPlain;
  size_t run = 0;
  std::vector<HeatRow> rows;
  double low = 0, high = 1;     ///< values of the first and the last colour
  bool is_load = false;         ///< loads over an even share: colours of LoadScale
  bool is_logarithmic = false;  ///< colours follow the logarithm of positive values
  size_t split = 0;             ///< a line above this row; 0: none
  std::string note = {};        ///< below the picture
};

/// Adds a heat map with its table.
void add_heat(Page& page, const HeatFigure& figure);

}  // namespace shoal
