#pragma once

#include <torch/types.h>

#include <cstdint>

namespace shoal {

/// Counts of logits in narrow bins, whose sum over ranks gives a quantile of all logits.
///
/// Bins are 0.001 wide near 0 and 0.8 % of the logit far from it, up to a million on either side.
class LogitHistogram {
 public:
  static constexpr int64_t kBins = 4096;

  /// Counts the logits where `is_counted`, without NaN: float64 [kBins], on the logits' device.
  static torch::Tensor count(const torch::Tensor& logits, const torch::Tensor& is_counted);
  /// Upper end of the first bin up to which at least `share` of the counted logits lie, a float64
  /// scalar; with many equal logits, as of equal tokens, more than the share lie below it. NaN
  /// without logits. share < 1; at 0 or less the lowest bin with logits.
  static torch::Tensor quantile(const torch::Tensor& counts, double share);
};

}  // namespace shoal
