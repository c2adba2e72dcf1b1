#include "moe/exchange/dispatch.h"

#include <utility>

// T tokens  D width  A rows this rank sends  R rows it receives
namespace shoal {
namespace {

torch::Dtype sent_dtype(torch::Dtype dtype, Payload payload) {
  return payload == Payload::kBfloat16 ? torch::kBFloat16 : dtype;
}

const RowCounts& weights_or_rows(const RowCounts& weights, const RowCounts& rows) {
  return weights.empty() ? rows : weights;
}

}  // namespace

PendingPlans::PendingPlans(const std::vector<TokenAssignments>& chunks, UnitPlacement placement,
                           Communicator& expert, int64_t num_parts)
    : placement_(std::move(placement)), pieces_(cut_into_pieces(chunks, placement_, num_parts)) {
  TORCH_CHECK(placement_.num_ranks() == expert.size(), "dispatch: units are placed on ",
              placement_.num_ranks(), " ranks, the group has ", expert.size());
  if (expert.size() == 1) {
    TORCH_CHECK(num_parts == 1, "dispatch: ", num_parts, " parts of units on one rank, expected 1");
    for (const TokenAssignments& chunk : chunks) plans_.push_back(plan_on_one_rank(chunk));
  } else if (has_known_counts(pieces_)) {
    plans_ = make_plans(pieces_, placement_, known_counts(pieces_, placement_, expert.rank()));
  } else {
    counts_.emplace(rows_to_send(pieces_, placement_), placement_, expert);
  }
}

const std::vector<DispatchPlan>& PendingPlans::get() {
  if (counts_) {
    plans_ = make_plans(pieces_, placement_, counts_->wait());
    counts_.reset();
  }
  return plans_;
}

StartedDispatch start_dispatch(const torch::Tensor& x_TD, const torch::Tensor& weight_A,
                               const DispatchPlan& plan, Communicator& expert, Payload payload) {
  const torch::Tensor weight_W = weights_to_send(weight_A, plan);
  const torch::Dtype dtype = x_TD.scalar_type(), sent = sent_dtype(dtype, payload);
  if (expert.size() == 1) {
    const torch::Tensor rows_AD = gather_rows(x_TD, plan.index).to(sent);
    return {
        {start_all_to_all(rows_AD, plan.send_rows, plan.recv_rows, expert), dtype}, {}, weight_W};
  }
  const PackedType type{sent, weight_W.scalar_type(), x_TD.size(1)};
  const RowCounts& send_weights = weights_or_rows(plan.send_weights, plan.send_rows);
  const RowCounts& recv_weights = weights_or_rows(plan.recv_weights, plan.recv_rows);
  const PackedLayout layout = packed_layout(plan.send_rows, send_weights, type, x_TD.device());
  return {{start_all_to_all(pack_rows(x_TD, weight_W, plan.index, layout),
                            packed_counts(plan.send_rows, send_weights, type),
                            packed_counts(plan.recv_rows, recv_weights, type), expert),
           dtype},
          type,
          {}};
}

RowsWithWeights finish_dispatch(StartedDispatch started, const DispatchPlan& plan) {
  const torch::Tensor received = finish_all_to_all(std::move(started.rows.exchange));
  if (started.weight_W.defined()) return {received.to(started.rows.dtype), started.weight_W};
  const PackedLayout layout =
      packed_layout(plan.recv_rows, weights_or_rows(plan.recv_weights, plan.recv_rows),
                    started.sent, received.device());
  return unpack_rows(received, plan.to_units_R, started.rows.dtype, layout);
}

StartedRows start_combine(const torch::Tensor& rows_RD, const DispatchPlan& plan,
                          Communicator& expert, Payload payload) {
  const torch::Tensor arrived_RD = plan.to_units_R.defined()
                                       ? permute_rows(rows_RD, plan.to_arrival_R, plan.to_units_R)
                                       : rows_RD;
  const torch::Tensor sent_RD = arrived_RD.to(sent_dtype(rows_RD.scalar_type(), payload));
  return {start_all_to_all(sent_RD, plan.recv_rows, plan.send_rows, expert), rows_RD.scalar_type()};
}

torch::Tensor finish_combine(StartedRows started, const DispatchPlan& plan) {
  const torch::Tensor rows_AD = finish_all_to_all(std::move(started.exchange)).to(started.dtype);
  return sum_rows(rows_AD, plan.index);
}

Dispatched dispatch(const torch::Tensor& x_TD, const TokenAssignments& assignments,
                    const UnitPlacement& placement, Communicator& expert) {
  const DispatchPlan plan = PendingPlans({assignments}, placement, expert).get().front();
  const auto [rows_RD, weight_R] =
      finish_dispatch(start_dispatch(x_TD, assignments.weight_A, plan, expert), plan);
  return {rows_RD, weight_R, plan};
}

torch::Tensor combine(const torch::Tensor& rows_RD, const Dispatched& sent, Communicator& expert) {
  const torch::Tensor weighted_RD = rows_RD * sent.weight_R.unsqueeze(1);
  return finish_combine(start_combine(weighted_RD, sent.plan, expert), sent.plan);
}

}  // namespace shoal
