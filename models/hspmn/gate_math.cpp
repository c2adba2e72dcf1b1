#include "models/hspmn/gate_math.h"

#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>

namespace shoal {
namespace {

/// Bins are equal in asinh(kBinScale x): 0.001 wide at 0, 0.8 % of x far from it.
constexpr double kBinScale = 8.0;
constexpr double kLastBinEnd = 16.5;  // asinh(kBinScale * 1e6), about
constexpr double kBinWidth = 2 * kLastBinEnd / static_cast<double>(LogitHistogram::kBins);

}  // namespace

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

torch::Tensor LogitHistogram::count(const torch::Tensor& logits, const torch::Tensor& is_counted) {
  const torch::Tensor place = (logits.detach().to(torch::kFloat64) * kBinScale).asinh();
  const torch::Tensor in_range = ((place + kLastBinEnd) / kBinWidth).floor().clamp(0, kBins - 1);
  // One more bin takes the others, which are not selected: that would wait for a GPU.
  const torch::Tensor bin =
      in_range.masked_fill(~is_counted | in_range.isnan(), kBins).to(torch::kInt64).flatten();
  const torch::Tensor counts = torch::zeros({kBins + 1}, place.options());
  counts.scatter_add_(0, bin, torch::ones({1}, place.options()).expand_as(bin));
  return counts.narrow(0, 0, kBins);
}

torch::Tensor LogitHistogram::quantile(const torch::Tensor& counts, double share) {
  const torch::Tensor until = counts.cumsum(0);
  // The first bin at whose end that many logits are passed; its end, which a share of 0 is before.
  const torch::Tensor passed =
      share <= 0.0 ? torch::zeros_like(until[-1]) : (until < until[-1] * share).sum() + 1;
  const torch::Tensor value =
      (passed.to(torch::kFloat64) * kBinWidth - kLastBinEnd).sinh() / kBinScale;
  return torch::where(until[-1] > 0, value, torch::full_like(value, std::nan("")));
}

}  // namespace shoal
