#include "sparse/patterns/best_cells.h"

#include <ATen/ops/cumsum.h>
#include <ATen/ops/kthvalue.h>
#include <ATen/ops/sort.h>

#include <limits>

namespace shoal {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// Takes all scores above the last one to take, and the first of those equal to it.
torch::Tensor take(const torch::Tensor& score_C, int64_t count, const torch::Tensor& eligible_C) {
  const auto [last, place] = at::kthvalue(score_C, score_C.size(0) - count + 1);
  const torch::Tensor is_above = score_C > last;
  const torch::Tensor is_equal = (score_C == last) & eligible_C;
  return is_above | (is_equal & (at::cumsum(is_equal, 0) <= count - is_above.sum()));
}

}  // namespace

torch::Tensor best_cells(const torch::Tensor& score_C, int64_t count,
                         const torch::Tensor& is_eligible_C) {
  const torch::NoGradGuard no_grad;
  TORCH_CHECK(score_C.dim() == 1 && count >= 0, "best_cells: ", count, " of ", score_C.sizes());
  torch::Tensor eligible = is_eligible_C;
  if (!eligible.defined()) eligible = torch::ones_like(score_C, torch::kBool);
  if (count == 0) return torch::zeros_like(eligible);
  if (count >= score_C.size(0)) return eligible;
  return take(score_C.masked_fill(~eligible, kNever), count, eligible) & eligible;
}

torch::Tensor best_of_rows(const torch::Tensor& score_RC, int64_t count) {
  const torch::NoGradGuard no_grad;
  TORCH_CHECK(score_RC.dim() == 2 && count >= 0, "best_of_rows: ", count, " of ", score_RC.sizes());
  const auto [sorted, place_RC] =
      at::sort(score_RC, /*stable=*/true, /*dim=*/1, /*descending=*/true);
  const torch::Tensor chosen = place_RC.narrow(1, 0, std::min(count, score_RC.size(1)));
  return torch::zeros_like(score_RC, torch::kBool).scatter_(1, chosen, true);
}

}  // namespace shoal
