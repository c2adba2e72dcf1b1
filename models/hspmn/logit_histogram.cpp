#include "models/hspmn/logit_histogram.h"

#include <cmath>

namespace shoal {
namespace {

/// Bins are equal in asinh(kScale x): 0.001 wide at 0, 0.8 % of x far from it.
constexpr double kScale = 8.0;
constexpr double kEnd = 16.5;  // asinh(kScale * 1e6), about
constexpr double kPerBin = 2 * kEnd / static_cast<double>(LogitHistogram::kBins);

}  // namespace

torch::Tensor LogitHistogram::count(const torch::Tensor& logits, const torch::Tensor& is_counted) {
  const torch::Tensor place = (logits.detach().to(torch::kFloat64) * kScale).asinh();
  const torch::Tensor in_range = ((place + kEnd) / kPerBin).floor().clamp(0, kBins - 1);
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
  const torch::Tensor value = (passed.to(torch::kFloat64) * kPerBin - kEnd).sinh() / kScale;
  return torch::where(until[-1] > 0, value, torch::full_like(value, std::nan("")));
}

}  // namespace shoal
