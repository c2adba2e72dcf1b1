#include "moe/routing/capacity.h"

#include <torch/library.h>

#include <limits>

#include "runtime/base/exact_share.h"
#include "runtime/device/operator.h"

namespace shoal {
namespace {

/// Surviving weights of each token divided by their sum; zero where none survived.
torch::Tensor renormalise(const torch::Tensor& weight_TK, const torch::Tensor& choice_A) {
  torch::Tensor kept = torch::zeros({weight_TK.numel() + 1}, weight_TK.options());
  kept.index_fill_(0, choice_A + 1, 1);  // place 0 takes the padding rows
  const torch::Tensor kept_TK = kept.narrow(0, 1, weight_TK.numel()).view(weight_TK.sizes());
  const torch::Tensor survived_TK = weight_TK * kept_TK;
  const torch::Tensor sum_T1 = survived_TK.sum(1, /*keepdim=*/true);
  return survived_TK / torch::where(sum_T1 > 0, sum_T1, torch::ones_like(sum_T1));
}

/// Each token's highest score. A NaN is no token's best score.
torch::Tensor priority_of(const Routing& routing) {
  if (routing.priority_T.defined()) return routing.priority_T;
  const torch::Tensor& score_TK = routing.score_TK;
  return score_TK.masked_fill(score_TK.isnan(), -std::numeric_limits<double>::infinity()).amax(1);
}

}  // namespace

bool is_causal(const Capacity& capacity, int64_t choices_per_token) {
  return capacity.mode == CapacityMode::kDropless || capacity.order == CapacityOrder::kPosition ||
         (capacity.order == CapacityOrder::kSlotMajor && choices_per_token == 1);
}

int64_t unit_capacity(int64_t num_choices, int64_t num_units, const Capacity& capacity) {
  TORCH_CHECK(capacity.factor > 0, "capacity factor must be positive, got ", capacity.factor);
  TORCH_CHECK(num_units >= 1 && capacity.align >= 1 && capacity.min >= 0, "capacity: units ",
              num_units, ", align ", capacity.align, ", min ", capacity.min);
  const CapacityRule rule{decimal_of(capacity.factor), num_units, capacity.min, capacity.align};
  const int64_t rows = rule.rows_for(num_choices);
  constexpr int64_t kSane = int64_t{1} << 40;
  TORCH_CHECK(capacity.mode != CapacityMode::kPadded || rows <= kSane / num_units,
              "padded capacity needs ", rows, " rows in each of ", num_units,
              " units; lower capacity.factor or use mode capped");
  return rows;
}

TokenAssignments apply_capacity(const Routing& routing, const Capacity& capacity) {
  static const Operator<std::vector<torch::Tensor>(const torch::Tensor&, const torch::Tensor&,
                                                   const MaybeTensor&, c10::IntArrayRef, int64_t,
                                                   int64_t, int64_t, double, int64_t, int64_t)>
      op("shoal::assign_rows");
  TORCH_CHECK(routing.group_offsets.back() == routing.num_tokens(),
              "apply_capacity: groups end at ", routing.group_offsets.back(), " of ",
              routing.num_tokens(), " tokens");
  MaybeTensor priority_T;
  if (capacity.order == CapacityOrder::kBatchPriority) {
    priority_T = priority_of(routing).contiguous();
    TORCH_CHECK(priority_T->numel() == routing.num_tokens(), "apply_capacity: priorities ",
                priority_T->sizes(), " for ", routing.num_tokens(), " tokens");
  }
  const std::vector<torch::Tensor> rows =
      op(routing.unit_TK.contiguous(), routing.score_TK.contiguous(), priority_T,
         routing.group_offsets, routing.num_units, static_cast<int64_t>(capacity.mode),
         static_cast<int64_t>(capacity.order), capacity.factor, capacity.min, capacity.align);
  TokenAssignments result{rows[0], rows[1], {}, rows[2], routing.num_tokens(), rows[3]};
  torch::Tensor weight_TK = routing.weight_TK;
  if (routing.renorm_after_drop) weight_TK = renormalise(weight_TK, result.choice_A);
  if (routing.weight_scale != 1.0) weight_TK = weight_TK * routing.weight_scale;
  // On a GPU that would take a copy to the host.
  const bool has_padding =
      !result.num_kept.is_cpu() || result.num_kept.item<int64_t>() < result.choice_A.size(0);
  result.weight_A = weight_TK.flatten().index_select(
      0, has_padding ? result.choice_A.clamp_min(0) : result.choice_A);
  return result;
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "assign_rows(Tensor unit, Tensor score, Tensor? priority, int[] group_offsets, "
      "int num_units, int mode, int order, float factor, int min, int align) -> Tensor[]");
}

}  // namespace shoal
