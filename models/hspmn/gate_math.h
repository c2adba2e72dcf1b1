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

/// Schedule of the target rate of open gates: linear from `first` to `last`, then constant.
struct RateAnnealing {
  double first = 0.8, last = 0.2;
  int64_t steps = 100;
  double at(int64_t step) const;
};

}  // namespace shoal
