#pragma once

#include <string>
#include <vector>

#include "launch/pages/picture.h"
#include "launch/report/known_metrics.h"

namespace shoal {

/// A range of numbers along one side of a picture, with round numbers written beside it.
class Axis {
 public:
  /// From `low` to `high`, or a little around them if they are equal. `logarithmic` needs `low` >
  /// 0.
  Axis(double low, double high, Quantity quantity, bool logarithmic = false);

  /// About `wanted` of them, at least one.
  std::vector<ScaleTick> ticks(int wanted) const;
  /// 0 = low end, 1 = high end; clamped.
  double place(double value) const;
  bool is_logarithmic() const { return logarithmic_; }

 private:
  /// Of ten, of bytes powers of two.
  std::vector<ScaleTick> powers() const;

  double low_, high_;
  Quantity quantity_;
  bool logarithmic_;
};

}  // namespace shoal
