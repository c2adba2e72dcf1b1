#pragma once

#include <torch/types.h>

#include <cstdint>

namespace shoal {

/// sigma((logits + noise) / temperature): a binary gate with noise, as used in the backward pass.
/// Source: HSPMN, equation 2, with the bias that `noise` may have.
torch::Tensor soft_gate(const torch::Tensor& logits, const torch::Tensor& noise,
                        const torch::Tensor& temperature);

/// Forward: exactly 1 where `is_open`, else 0; backward: the gradient of `soft` (straight-through
/// estimator). Source: HSPMN, equation 3.
torch::Tensor straight_through(const torch::Tensor& soft, const torch::Tensor& is_open);

/// Entropy of a Bernoulli variable with p = sigma(logit), -p log p - (1 - p) log(1 - p), in nats;
/// accurate for p near 0 and 1.
torch::Tensor binary_entropy(const torch::Tensor& logits);

/// Weights of the two terms of gate_loss.
struct GateLossWeights {
  double rate = 0.1;      ///< lambda_1
  double entropy = 0.01;  ///< lambda_2
};

/// Sums over this rank's counted logits, float64 scalars; the first two are differentiable.
struct GateSums {
  torch::Tensor probability;  ///< sum of sigma(logit)
  torch::Tensor entropy;      ///< sum of binary_entropy(logit)
  torch::Tensor count;
};

GateSums sum_gates(const torch::Tensor& logits, const torch::Tensor& is_counted);

/// This rank's share of lambda_1 (mean probability - target)² + lambda_2 (mean entropy), with means
/// over the tokens of all ranks: the shares add up to this loss, in value and gradient. `all_2`:
/// probability and count summed over all ranks. Source: HSPMN, equation 1.
torch::Tensor gate_loss(const GateSums& own, const torch::Tensor& all_2, double target,
                        const GateLossWeights& weights);

/// Target of the active rate at a step: from `first` to `last` in equal steps, then `last`.
struct RateAnnealing {
  double first = 0.8, last = 0.2;
  int64_t steps = 100;
  double at(int64_t step) const;
};

}  // namespace shoal
