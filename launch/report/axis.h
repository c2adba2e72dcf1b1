#pragma once

#include <vector>

#include "launch/pages/picture.h"
#include "launch/report/known_metrics.h"

namespace shoal {

/// One axis of a plot: maps values to positions and chooses round numbers as tick labels.
class Axis {
 public:
  /// Covers `low` to `high`, or a little more if they are equal. `logarithmic` requires `low` > 0.
  Axis(double low, double high, Quantity quantity, bool logarithmic = false);

  /// About `wanted` ticks, at least one.
  std::vector<ScaleTick> ticks(int wanted) const;
  /// Position of a value: 0 = low end, 1 = high end; clamped.
  double place(double value) const;
  bool is_logarithmic() const { return logarithmic_; }

 private:
  /// Ticks at powers of ten, or of two for bytes.
  std::vector<ScaleTick> powers() const;

  double low_, high_;
  Quantity quantity_;
  bool logarithmic_;
};

}  // namespace shoal
