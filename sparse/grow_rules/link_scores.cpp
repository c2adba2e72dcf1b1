#include "sparse/grow_rules/link_scores.h"

#include <ATen/ops/nonzero.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <cstdint>
#include <limits>

// m rows, outputs  n columns, inputs  k links of a column
namespace shoal {
namespace {

/// Rounds x so that sums of up to `terms` such numbers <= `largest` are exact in any order.
torch::Tensor rounded_for_sums(const torch::Tensor& x, double largest, int64_t terms) {
  const int exponent = std::ilogb(largest * static_cast<double>(terms)) + 1;
  const double unit = std::ldexp(1.0, exponent - std::numeric_limits<double>::digits);
  return (x / unit).round_().mul_(unit);
}

/// Factor of node b in paths from node a of the same side: 1 / (1 + e) or (1 + i) / (1 + e), for i
/// common links of a and b and 1 + e other links of b, one of which leads to the path's end.
torch::Tensor parts(const torch::Tensor& links_mn, bool counts_internal) {
  const torch::Tensor common_mm = links_mn.matmul(links_mn.t());
  // Where b only has links to neighbours of a, no path leads to a missing link.
  const torch::Tensor external_mm = (links_mn.sum(1) - common_mm).clamp_min_(1);
  const torch::Tensor part_mm =
      counts_internal ? (common_mm + 1).div_(external_mm) : external_mm.reciprocal();
  return part_mm.masked_fill(common_mm == 0, 0);
}

/// In a path u - c - r - v the factor of c depends on v, and the factor of r on u, so the sum over
/// all paths through one column is a matrix product.
torch::Tensor path_scores(const torch::Tensor& links_mn, bool counts_internal) {
  const int64_t rows = links_mn.size(0), columns = links_mn.size(1);
  const double largest = counts_internal ? std::sqrt(static_cast<double>(columns + 1)) : 1.0;
  const torch::Tensor part_of_row =
      rounded_for_sums(parts(links_mn, counts_internal).sqrt_(), largest, rows).view({-1});
  const torch::Tensor part_nn = parts(links_mn.t(), counts_internal).sqrt_().t().contiguous();
  const torch::Tensor row_of_link = at::nonzero(links_mn.t()).select(1, 1);
  const torch::Tensor degree_n = links_mn.sum(0).to(torch::kCPU, torch::kInt64);
  const auto* degree = degree_n.const_data_ptr<int64_t>();
  torch::Tensor score_mn = at::zeros_like(links_mn);
  int64_t begin = 0;
  for (int64_t c = 0; c < columns; begin += degree[c], ++c) {
    const torch::Tensor row_k = row_of_link.narrow(0, begin, degree[c]);
    const torch::Tensor pair_kk = row_k.unsqueeze(1) * rows + row_k;
    const torch::Tensor part_kk = part_of_row.index_select(0, pair_kk.view({-1})).view_as(pair_kk);
    const torch::Tensor path_kn = part_kk.matmul(links_mn.index_select(0, row_k));
    // Separate operations: a fused one may round differently at the end of a thread's range.
    path_kn.mul_(part_nn[c]).add_(score_mn.index_select(0, row_k));
    score_mn.index_copy_(0, row_k, path_kn);
  }
  return score_mn;
}

/// The part of the L3n score from pairs of rows.
torch::Tensor pair_scores(const torch::Tensor& links_mn, bool counts_internal) {
  const int64_t rows = links_mn.size(0), columns = links_mn.size(1);
  const double largest = counts_internal ? static_cast<double>(columns + 1) : 1.0;
  return rounded_for_sums(parts(links_mn, counts_internal), largest, rows).matmul(links_mn);
}

}  // namespace

torch::Tensor link_scores(const torch::Tensor& mask_mn, LinkScore kind) {
  const torch::NoGradGuard no_grad;
  TORCH_CHECK(mask_mn.dim() == 2 && mask_mn.scalar_type() == torch::kBool,
              "link_scores: expected a bool matrix, got ", mask_mn.scalar_type(), " ",
              mask_mn.sizes());
  const torch::Tensor links_mn = mask_mn.to(torch::kFloat64);
  const bool counts_internal = kind == LinkScore::kCh2L3p || kind == LinkScore::kCh2L3n;
  torch::Tensor score_mn;
  if (kind == LinkScore::kCh3L3n || kind == LinkScore::kCh2L3n) {
    score_mn =
        pair_scores(links_mn, counts_internal) + pair_scores(links_mn.t(), counts_internal).t();
  } else if (links_mn.size(0) < links_mn.size(1)) {
    score_mn = path_scores(links_mn.t().contiguous(), counts_internal).t();
  } else {
    score_mn = path_scores(links_mn, counts_internal);
  }
  return score_mn.masked_fill(mask_mn, 0).contiguous();
}

}  // namespace shoal
