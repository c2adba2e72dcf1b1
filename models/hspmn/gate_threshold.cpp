#include "models/hspmn/gate_threshold.h"

#include <ATen/ops/bincount.h>

#include <cmath>

namespace shoal {
namespace {

/// Bins are equal in asinh(kScale x): 0.001 wide at 0, 0.8 % of x far from it.
constexpr double kScale = 8.0;
constexpr double kEnd = 16.5;  // asinh(kScale * 1e6), about
constexpr double kPerBin = 2 * kEnd / static_cast<double>(LogitHistogram::kBins);

}  // namespace

torch::Tensor LogitHistogram::count(const torch::Tensor& logits) {
  const torch::Tensor place = (logits.detach().flatten().to(torch::kFloat64) * kScale).asinh();
  const torch::Tensor bin =
      ((place + kEnd) / kPerBin).floor().clamp(0, kBins - 1).to(torch::kInt64);
  return at::bincount(bin, {}, kBins).to(torch::kFloat64);
}

torch::Tensor LogitHistogram::quantile(const torch::Tensor& counts, double share) {
  const torch::Tensor until = counts.cumsum(0);
  // The first bin at whose end that many logits are passed; its end, which a share of 0 is before.
  const torch::Tensor passed =
      share <= 0.0 ? torch::zeros_like(until[-1]) : (until < until[-1] * share).sum() + 1;
  const torch::Tensor value = (passed.to(torch::kFloat64) * kPerBin - kEnd).sinh() / kScale;
  return torch::where(until[-1] > 0, value, torch::full_like(value, std::nan("")));
}

}  // namespace shoal
