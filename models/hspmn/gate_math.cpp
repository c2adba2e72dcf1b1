#include "models/hspmn/gate_math.h"

#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>

namespace shoal {

torch::Tensor soft_gate(const torch::Tensor& logits, const torch::Tensor& noise,
                        const torch::Tensor& temperature) {
  torch::Tensor z = noise.defined() ? logits + noise : logits;
  if (temperature.defined()) z = z / temperature;
  return at::sigmoid(z);
}

torch::Tensor straight_through(const torch::Tensor& soft, const torch::Tensor& is_open) {
  return is_open.to(soft.scalar_type()) + (soft - soft.detach());
}

torch::Tensor binary_entropy(const torch::Tensor& logits) {
  // H = -p log p - q log q = -log q - p l, as log p - log q = l.
  return -at::log_sigmoid(-logits) - at::sigmoid(logits) * logits;
}

GateSums sum_gates(const torch::Tensor& logits, const torch::Tensor& is_counted) {
  const torch::Tensor logit = logits.masked_fill(~is_counted, 0.0);
  const torch::Tensor mask = is_counted.to(logit.scalar_type());
  return {(at::sigmoid(logit) * mask).sum(torch::kFloat64),
          (binary_entropy(logit) * mask).sum(torch::kFloat64), mask.sum(torch::kFloat64)};
}

torch::Tensor gate_loss(const GateSums& own, const torch::Tensor& all_2, double target,
                        const GateLossWeights& weights) {
  const torch::Tensor tokens = all_2[1].clamp_min(1.0);
  const torch::Tensor mean = all_2[0] / tokens;
  const torch::Tensor excess = mean - target;
  // The square of a mean over all ranks: its slope is known, so each rank adds the part of its own
  // tokens, and the constant that makes the parts' sum the square.
  const torch::Tensor slope = 2.0 * weights.rate * excess;
  const torch::Tensor rest = weights.rate * excess * excess - slope * mean;
  return (own.probability * slope + own.entropy * weights.entropy + rest * own.count) / tokens;
}

double RateAnnealing::at(int64_t step) const {
  if (step >= steps) return last;
  return first + (last - first) * static_cast<double>(step) / static_cast<double>(steps);
}

}  // namespace shoal
