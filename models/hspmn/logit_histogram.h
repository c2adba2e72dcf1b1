#pragma once

#include <torch/types.h>

#include <cstdint>

namespace shoal {

/// Counts of logits in narrow bins, from which ranks find a quantile of all their logits with one
/// sum.
///
/// Bins are 0.001 wide at 0 and 0.8 % of a logit far from it, up to a million on either side.
class LogitHistogram {
 public:
  static constexpr int64_t kBins = 4096;

  /// float64 [kBins], on the logits' device, of those where `is_counted` that are numbers.
  static torch::Tensor count(const torch::Tensor& logits, const torch::Tensor& is_counted);
  /// The end of the first bin up to which at least this share of the counted logits lies, a float64
  /// scalar: where many logits are equal, as of equal tokens, more than the share lie below it, not
  /// fewer. Not a number without logits. share < 1; from 0 down the least there is.
  static torch::Tensor quantile(const torch::Tensor& counts, double share);
};

}  // namespace shoal
