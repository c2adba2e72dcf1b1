#include "moe/exchange/row_route.h"

#include <optional>
#include <utility>

#include "runtime/device/device_copy.h"

// T tokens  D width  C pieces  V units in the order of their ranks  u units on this rank  E ranks
namespace shoal {
namespace {

/// Tells each rank how many rows the others send to its units: one all-to-all for all pieces, and
/// the copy of its result to the host, both in flight between construction and `wait`.
class CountExchange {
 public:
  /// Starts, in the order of the stream. Collective over `expert`, which must outlive this.
  CountExchange(torch::Tensor sent_CV, const UnitPlacement& placement, Communicator& expert)
      : expert_(expert), sent_CV_(std::move(sent_CV)) {
    const RowCounts units_of_rank = placement.num_units_of_ranks();
    const int64_t num_pieces = sent_CV_.size(0);
    const int64_t own = units_of_rank[static_cast<size_t>(expert.rank())];
    std::vector<torch::Tensor> by_rank;
    RowCounts send;
    for (const torch::Tensor& counts_Cu : sent_CV_.split_with_sizes(units_of_rank, 1)) {
      by_rank.push_back(counts_Cu.flatten());
      send.push_back(counts_Cu.numel());
    }
    received_ECu_ = torch::empty({expert.size(), num_pieces, own}, sent_CV_.options());
    exchange_ = expert.start_all_to_all(torch::cat(by_rank), send, received_ECu_.view({-1}),
                                        RowCounts(send.size(), own * num_pieces));
    if (!sent_CV_.is_cpu()) start_copy();
  }

  /// Blocks the host until the counts are there; once. Throws CommError.
  DispatchCounts wait() {
    if (!copy_) start_copy();
    const torch::Tensor& counts = copy_->wait();
    expert_.throw_if_failed();
    const int64_t* first = counts.const_data_ptr<int64_t>();
    const int64_t* received = first + sent_CV_.numel();
    return {{first, received}, {received, first + counts.numel()}, received_ECu_};
  }

 private:
  void start_copy() {
    exchange_.wait();
    copy_.emplace(torch::cat({sent_CV_.flatten(), received_ECu_.flatten()}));
  }

  Communicator& expert_;
  torch::Tensor sent_CV_;
  torch::Tensor received_ECu_;
  Pending exchange_;
  std::optional<HostCopy> copy_;
};

}  // namespace

PendingPlans ready_plans(std::vector<DispatchPlan> plans) {
  std::promise<std::vector<DispatchPlan>> promise;
  promise.set_value(std::move(plans));
  return promise.get_future().share();
}

PendingPlans start_plans(const std::vector<TokenAssignments>& chunks,
                         const UnitPlacement& placement, Communicator& expert, int64_t num_parts) {
  std::vector<Piece> pieces = cut_into_pieces(chunks, placement, num_parts);
  TORCH_CHECK(placement.num_ranks() == expert.size(), "dispatch: units are placed on ",
              placement.num_ranks(), " ranks, the group has ", expert.size());
  if (expert.size() == 1) {
    TORCH_CHECK(num_parts == 1, "dispatch: ", num_parts, " parts of units on one rank, expected 1");
    std::vector<DispatchPlan> plans;
    for (const TokenAssignments& chunk : chunks) plans.push_back(plan_on_one_rank(chunk));
    return ready_plans(std::move(plans));
  }
  if (has_known_counts(pieces)) {
    return ready_plans(
        make_plans(pieces, placement, known_counts(pieces, placement, expert.rank())));
  }
  CountExchange counts(rows_to_send(pieces, placement), placement, expert);
  auto finish = [pieces = std::move(pieces), placement, counts = std::move(counts)]() mutable {
    return make_plans(pieces, placement, counts.wait());
  };
  return std::async(std::launch::deferred, std::move(finish)).share();
}

torch::Dtype FlatExchange::sent_dtype() const {
  return payload_ == Payload::kBfloat16 ? torch::kBFloat16 : dtype_;
}

void FlatExchange::start_dispatch(const torch::Tensor& x_TD) {
  const torch::Tensor weight_W = weights_to_send(weight_A_, plan());
  dtype_ = x_TD.scalar_type();
  if (expert_.size() == 1) {
    weight_A_ = weight_W;
    started_ = start_all_to_all(gather_rows(x_TD, plan().index).to(sent_dtype()), plan().send_rows,
                                plan().recv_rows, expert_);
    return;
  }
  type_ = {sent_dtype(), weight_W.scalar_type(), x_TD.size(1)};
  const PackedLayout layout =
      packed_layout(plan().send_rows, plan().send_weights, type_, x_TD.device());
  started_ = start_all_to_all(pack_rows(x_TD, weight_W, plan().index, layout),
                              packed_counts(plan().send_rows, plan().send_weights, type_),
                              packed_counts(plan().recv_rows, plan().recv_weights, type_), expert_);
}

ArrivedRows FlatExchange::finish_dispatch() {
  const torch::Tensor received = finish_all_to_all(std::move(started_));
  if (expert_.size() == 1) return {received.to(dtype_), plan().rows_u, weight_A_};
  const PackedLayout layout =
      packed_layout(plan().recv_rows, plan().recv_weights, type_, received.device());
  const auto [rows_RD, weight_R] = unpack_rows(received, plan().to_units_R, dtype_, layout);
  return {rows_RD, plan().rows_u, weight_R};
}

void FlatExchange::start_combine(const torch::Tensor& rows_RD) {
  const torch::Tensor arrived_RD =
      plan().to_units_R.defined() ? permute_rows(rows_RD, plan().to_arrival_R, plan().to_units_R)
                                  : rows_RD;
  dtype_ = rows_RD.scalar_type();
  started_ =
      start_all_to_all(arrived_RD.to(sent_dtype()), plan().recv_rows, plan().send_rows, expert_);
}

torch::Tensor FlatExchange::finish_combine() {
  return sum_rows(finish_all_to_all(std::move(started_)).to(dtype_), plan().index);
}

std::vector<std::unique_ptr<RowExchange>> plan_exchange(const std::vector<TokenAssignments>& chunks,
                                                        const UnitPlacement& placement,
                                                        const RankGrid& grid,
                                                        const ExchangeOptions& options,
                                                        int64_t num_parts) {
  if (options.hierarchical && grid.num_nodes() > 1) {
    TORCH_CHECK(num_parts == 1, "exchange: ", num_parts,
                " parts of units in two levels, expected 1");
    return plan_node_exchange(chunks, placement, grid, options.payload);
  }
  TORCH_CHECK(num_parts == 1 || chunks.size() == 1, "exchange: ", chunks.size(), " chunks in ",
              num_parts, " parts, expected 1 of either");
  const PendingPlans plans = start_plans(chunks, placement, *grid.expert, num_parts);
  std::vector<std::unique_ptr<RowExchange>> exchanges;
  for (const TokenAssignments& chunk : chunks) {
    for (int64_t part = 0; part < num_parts; ++part) {
      exchanges.push_back(
          std::make_unique<FlatExchange>(FlatExchange::Planned{plans, exchanges.size()},
                                         chunk.weight_A, *grid.expert, options.payload));
    }
  }
  return exchanges;
}

}  // namespace shoal
