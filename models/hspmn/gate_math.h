#pragma once

#include <torch/types.h>

#include <cstdint>

namespace shoal {

/// Relaxed token gate, sigma((logits + noise) / temperature), from which the backward pass takes
/// its gradient. A token gate decides which tokens attend. An undefined `noise` counts as 0, an
/// undefined `temperature` as 1. Source: HSPMN v2.1 (Jędryczko 2025), equation 2.
torch::Tensor soft_gate(const torch::Tensor& logits, const torch::Tensor& noise,
                        const torch::Tensor& temperature);

/// Gate that is exactly 1 where `is_open`, else 0, in the forward pass, with the gradient of `soft`
/// in the backward pass (straight-through estimator). Source: HSPMN v2.1, equation 3.
torch::Tensor straight_through(const torch::Tensor& soft, const torch::Tensor& is_open);

/// Entropy of a Bernoulli variable with p = sigma(logit), -p log p - (1 - p) log(1 - p), in nats;
/// accurate for p near 0 and 1.
torch::Tensor binary_entropy(const torch::Tensor& logits);

/// Weights of the two terms of gate_loss.
struct GateLossWeights {
  double rate = 0.1;      ///< lambda_1
  double entropy = 0.01;  ///< lambda_2
};

/// Sums over the counted logits of this rank, float64 scalars. Count has no gradient.
struct GateSums {
  torch::Tensor probability;  ///< sum of sigma(logit)
  torch::Tensor entropy;      ///< sum of binary_entropy(logit)
  torch::Tensor count;
};

/// Sums over the logits where `is_counted`: tokens that are neither padding nor always open.
GateSums sum_gates(const torch::Tensor& logits, const torch::Tensor& is_counted);

/// This rank's summand of the gate loss lambda_1 (mean probability - target)² + lambda_2 (mean
/// entropy), with means over the tokens of all ranks. The summands of all ranks add up to the loss,
/// and each has the loss's gradient in its rank's logits. `all_2` [2], detached: probability and
/// count, each summed over all ranks. Source: HSPMN v2.1, equation 1.
torch::Tensor gate_loss(const GateSums& own, const torch::Tensor& all_2, double target,
                        const GateLossWeights& weights);

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
