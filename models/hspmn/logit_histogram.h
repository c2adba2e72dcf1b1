#pragma once

#include <torch/types.h>

#include <cstdint>

namespace shoal {

/// Histogram of the logits of a token gate, which selects the tokens that attend. With one
/// all-reduce all ranks find a quantile of their joint logits, the gate's threshold.
///
/// Bins are 0.001 wide near 0 and 0.8 % of the logit's magnitude far from it, up to 1e6.
class LogitHistogram {
 public:
  static constexpr int64_t kBins = 4096;

  /// Counts the logits where `is_counted`, NaN excluded: float64 [kBins], on the logits' device.
  static torch::Tensor count(const torch::Tensor& logits, const torch::Tensor& is_counted);
  /// Upper edge of the first bin at which the cumulative share of logits reaches `share`, a float64
  /// scalar. With many equal logits more than this share may lie below the result, never less.
  /// NaN without logits. share < 1; a share of 0 or less gives the lowest edge.
  static torch::Tensor quantile(const torch::Tensor& counts, double share);
};

}  // namespace shoal
