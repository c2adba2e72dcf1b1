#include "moe/exchange/dispatch.h"

#include <algorithm>
#include <numeric>
#include <utility>

// C chunks, or their pieces  U units  V units in the order of their ranks  u units on this rank
// E ranks  A rows this rank sends  R rows it receives
namespace shoal {
namespace {

torch::Tensor inverse_of(const torch::Tensor& order) {
  return torch::empty_like(order).scatter_(0, order, torch::arange(order.size(0), order.options()));
}

/// 1 for each unit of part `part` of its rank's.
std::vector<int64_t> units_of_part(const UnitPlacement& placement, int64_t part,
                                   int64_t num_parts) {
  std::vector<int64_t> is_taken_U(static_cast<size_t>(placement.num_units()), 0);
  for (int64_t rank = 0; rank < placement.num_ranks(); ++rank) {
    const std::vector<int64_t>& units = placement.units_of_rank(rank);
    const UnitRange range = part_of(static_cast<int64_t>(units.size()), part, num_parts);
    for (int64_t i = range.first; i < range.first + range.count; ++i) {
      is_taken_U[static_cast<size_t>(units[static_cast<size_t>(i)])] = 1;
    }
  }
  return is_taken_U;
}

/// Tokens and weights in the order they are sent. A token's rows stay listed by unit, so that sums
/// over them do not depend on where units live.
void set_order(DispatchPlan& plan, const TokenAssignments& assignments,
               const UnitPlacement& placement) {
  plan.index = make_row_index(assignments.token_A, assignments.num_tokens);
  plan.weight_A = assignments.weight_A;
  if (placement.is_contiguous()) return;
  const torch::Tensor& rows_U = assignments.rows_U;
  const torch::Tensor unit_V = send_to(placement.units_by_rank(), rows_U.device());
  const torch::Tensor order_A =
      indices_of_runs(exclusive_sum(rows_U).index_select(0, unit_V), rows_U.index_select(0, unit_V),
                      assignments.token_A.size(0));
  plan.index.token_A = plan.index.token_A.index_select(0, order_A);
  plan.index.row_A = inverse_of(order_A).index_select(0, plan.index.row_A);
  plan.weight_A = plan.weight_A.index_select(0, order_A);
}

/// Whether the blocks of rows that are there, by (rank, unit), also come sorted by (unit, rank).
bool is_sorted_by_unit(const std::vector<int64_t>& count_Eu, size_t num_units) {
  size_t last = 0;
  for (size_t unit = 0; unit < num_units; ++unit) {
    for (size_t block = unit; block < count_Eu.size(); block += num_units) {
      if (count_Eu[block] == 0) continue;
      if (block < last) return false;
      last = block;
    }
  }
  return true;
}

/// How what arrives is sorted by unit. `device_Eu` are the same counts where the rows are.
void set_arrival(DispatchPlan& plan, const std::vector<int64_t>& count_Eu,
                 const torch::Tensor& device_Eu) {
  const auto num_units = static_cast<size_t>(device_Eu.size(1));
  std::vector<int64_t> rows_u(num_units, 0);
  for (size_t i = 0; i < count_Eu.size(); ++i) rows_u[i % num_units] += count_Eu[i];
  plan.rows_u = std::move(rows_u);
  if (is_sorted_by_unit(count_Eu, num_units)) return;
  const torch::Tensor first_Eu = exclusive_sum(device_Eu.flatten()).view(device_Eu.sizes());
  plan.to_units_R =
      indices_of_runs(first_Eu.t().flatten(), device_Eu.t().flatten(), sum(plan.recv_rows));
  plan.to_arrival_R = inverse_of(plan.to_units_R);
}

StartedRows start_rows(const torch::Tensor& rows, const RowCounts& send, const RowCounts& recv,
                       Communicator& expert, Payload payload) {
  const torch::Tensor sent = payload == Payload::kBfloat16 ? rows.to(torch::kBFloat16) : rows;
  return {start_all_to_all(sent, send, recv, expert), rows.scalar_type()};
}

torch::Tensor finish_rows(StartedRows started) {
  return finish_all_to_all(std::move(started.exchange)).to(started.dtype);
}

}  // namespace

torch::Tensor exclusive_sum(const torch::Tensor& counts) { return counts.cumsum(0) - counts; }

torch::Tensor indices_of_runs(const torch::Tensor& first_V, const torch::Tensor& rows_V,
                              int64_t total) {
  const torch::Tensor shift_V = first_V - exclusive_sum(rows_V);
  return torch::repeat_interleave(shift_V, rows_V, /*dim=*/0, /*output_size=*/total) +
         torch::arange(total, rows_V.options());
}

torch::Tensor DispatchPlans::Piece::rows_U() const {
  return taken_U.defined() ? assignments.rows_U * taken_U : assignments.rows_U;
}

// On a GPU padding stands behind the rows of units.
TokenAssignments DispatchPlans::Piece::taken(int64_t num_rows) const {
  TokenAssignments rows = assignments;
  if (taken_U.defined()) rows.rows_U = rows_U();
  if (num_rows == rows.token_A.size(0)) return rows;
  torch::Tensor row_A;
  if (taken_U.defined()) {
    row_A = indices_of_runs(exclusive_sum(assignments.rows_U), rows.rows_U, num_rows);
  }
  for (torch::Tensor* tensor : {&rows.token_A, &rows.choice_A, &rows.weight_A}) {
    if (!tensor->defined()) continue;
    *tensor = row_A.defined() ? tensor->index_select(0, row_A) : tensor->narrow(0, 0, num_rows);
  }
  return rows;
}

DispatchPlans::DispatchPlans(const std::vector<TokenAssignments>& chunks, UnitPlacement placement,
                             Communicator& expert, int64_t num_parts)
    : placement_(std::move(placement)), expert_(expert) {
  TORCH_CHECK(placement_.num_ranks() == expert.size(), "dispatch: units are placed on ",
              placement_.num_ranks(), " ranks, the group has ", expert.size());
  for (const TokenAssignments& chunk : chunks) {
    TORCH_CHECK(chunk.rows_U.size(0) == placement_.num_units(), "dispatch: ", chunk.rows_U.size(0),
                " units in the assignments, ", placement_.num_units(), " placed");
    const auto own_rank = static_cast<size_t>(expert.rank());
    TORCH_CHECK(chunk.rows_per_unit_E.empty() || !chunk.rows_U.is_cpu() ||
                    chunk.rows_U.eq(chunk.rows_per_unit_E[own_rank]).all().item<bool>(),
                "dispatch: units have other numbers of rows than was said");
    for (int64_t part = 0; part < num_parts; ++part) {
      Piece& piece = pieces_.emplace_back(Piece{chunk, {}, {}});
      if (num_parts == 1) continue;
      piece.is_taken_U = units_of_part(placement_, part, num_parts);
      piece.taken_U = send_to(piece.is_taken_U, chunk.rows_U.device());
    }
  }
  if (expert.size() == 1) {
    TORCH_CHECK(num_parts == 1, "dispatch: ", num_parts, " parts of units on one rank, expected 1");
    return;
  }
  std::vector<torch::Tensor> rows_CU;
  for (const Piece& piece : pieces_) rows_CU.push_back(piece.rows_U());
  sent_CV_ = torch::stack(rows_CU);
  if (!placement_.is_contiguous()) {
    sent_CV_ = sent_CV_.index_select(1, send_to(placement_.units_by_rank(), sent_CV_.device()));
  }
  const auto is_known = [](const TokenAssignments& chunk) {
    return !chunk.rows_per_unit_E.empty();
  };
  if (std::all_of(chunks.begin(), chunks.end(), is_known)) return;
  start_exchange();
  if (!sent_CV_.is_cpu()) start_copy();  // in the order of the stream
}

void DispatchPlans::start_exchange() {
  const RowCounts units_of_rank = placement_.num_units_of_ranks();
  const auto num_pieces = static_cast<int64_t>(pieces_.size());
  const int64_t own = units_of_rank[static_cast<size_t>(expert_.rank())];
  std::vector<torch::Tensor> by_rank;
  RowCounts send;
  for (const torch::Tensor& counts_Cu : sent_CV_.split_with_sizes(units_of_rank, 1)) {
    by_rank.push_back(counts_Cu.flatten());
    send.push_back(counts_Cu.numel());
  }
  received_ECu_ = torch::empty({expert_.size(), num_pieces, own}, sent_CV_.options());
  exchange_ = expert_.start_all_to_all(torch::cat(by_rank), send, received_ECu_.view({-1}),
                                       RowCounts(send.size(), own * num_pieces));
}

void DispatchPlans::start_copy() {
  exchange_.wait();
  copy_.emplace(torch::cat({sent_CV_.flatten(), received_ECu_.flatten()}));
}

const std::vector<DispatchPlan>& DispatchPlans::get() {
  if (!plans_.empty() || pieces_.empty()) return plans_;
  if (expert_.size() == 1) {
    plan_own();
  } else if (!received_ECu_.defined()) {
    plan_from(known_counts());
  } else {
    if (!copy_) start_copy();
    const torch::Tensor& counts = copy_->wait();
    expert_.throw_if_failed();
    const int64_t* first = counts.const_data_ptr<int64_t>();
    plan_from({first, first + counts.numel()});
  }
  return plans_;
}

void DispatchPlans::plan_own() {
  for (const Piece& piece : pieces_) {
    const TokenAssignments& chunk = piece.assignments;
    DispatchPlan& plan = plans_.emplace_back();
    set_order(plan, chunk, placement_);
    plan.send_rows = plan.recv_rows = {chunk.token_A.size(0)};
    if (!chunk.rows_U.is_cpu()) {
      plan.rows_u = UnitRows(chunk.rows_U);
      continue;
    }
    const torch::Tensor rows_U = chunk.rows_U.contiguous();
    const int64_t* first = rows_U.const_data_ptr<int64_t>();
    plan.rows_u = std::vector<int64_t>(first, first + rows_U.numel());
  }
}

std::vector<int64_t> DispatchPlans::known_counts() const {
  const auto own_rank = static_cast<size_t>(expert_.rank());
  std::vector<int64_t> counts;
  const auto add = [&](const Piece& piece, int64_t rows, const std::vector<int64_t>& units) {
    for (const int64_t unit : units) {
      const bool is_taken =
          piece.is_taken_U.empty() || piece.is_taken_U[static_cast<size_t>(unit)] > 0;
      counts.push_back(is_taken ? rows : 0);
    }
  };
  for (const Piece& piece : pieces_) {
    add(piece, piece.assignments.rows_per_unit_E[own_rank], placement_.units_by_rank());
  }
  for (size_t rank = 0; rank < static_cast<size_t>(expert_.size()); ++rank) {
    for (const Piece& piece : pieces_) {
      add(piece, piece.assignments.rows_per_unit_E[rank], placement_.units_of_rank(expert_.rank()));
    }
  }
  return counts;
}

void DispatchPlans::plan_from(const std::vector<int64_t>& counts) {
  const RowCounts units_of_rank = placement_.num_units_of_ranks();
  const int64_t own = units_of_rank[static_cast<size_t>(expert_.rank())];
  const auto num_pieces = static_cast<int64_t>(pieces_.size());
  auto sent = counts.begin();
  const auto received = sent + num_pieces * placement_.num_units();
  if (!received_ECu_.defined()) {
    received_ECu_ = send_to(std::vector<int64_t>(received, counts.end()), sent_CV_.device())
                        .view({expert_.size(), num_pieces, own});
  }
  for (int64_t piece = 0; piece < num_pieces; ++piece) {
    DispatchPlan& plan = plans_.emplace_back();
    for (const int64_t units : units_of_rank) {
      plan.send_rows.push_back(std::accumulate(sent, sent + units, int64_t{0}));
      sent += units;
    }
    std::vector<int64_t> count_Eu;
    for (int64_t rank = 0; rank < expert_.size(); ++rank) {
      const auto first = received + (rank * num_pieces + piece) * own;
      plan.recv_rows.push_back(std::accumulate(first, first + own, int64_t{0}));
      count_Eu.insert(count_Eu.end(), first, first + own);
    }
    set_order(plan, pieces_[static_cast<size_t>(piece)].taken(sum(plan.send_rows)), placement_);
    set_arrival(plan, count_Eu, received_ECu_.select(1, piece));
  }
}

std::vector<DispatchPlan> plan_rows(const std::vector<TokenAssignments>& chunks,
                                    const UnitPlacement& placement, Communicator& expert) {
  return DispatchPlans(chunks, placement, expert).get();
}

StartedRows start_dispatch(const torch::Tensor& x_TD, const DispatchPlan& plan,
                           Communicator& expert, Payload payload) {
  return start_rows(gather_rows(x_TD, plan.index), plan.send_rows, plan.recv_rows, expert, payload);
}

torch::Tensor finish_dispatch(StartedRows started, const DispatchPlan& plan) {
  const torch::Tensor rows_RD = finish_rows(std::move(started));
  if (!plan.to_units_R.defined()) return rows_RD;
  return permute_rows(rows_RD, plan.to_units_R, plan.to_arrival_R);
}

StartedExchange start_weights(const DispatchPlan& plan, Communicator& expert) {
  return start_all_to_all(plan.weight_A, plan.send_rows, plan.recv_rows, expert);
}

torch::Tensor finish_weights(StartedExchange started, const DispatchPlan& plan) {
  const torch::Tensor weight_R = finish_all_to_all(std::move(started));
  if (!plan.to_units_R.defined()) return weight_R;
  return permute_rows(weight_R.unsqueeze(1), plan.to_units_R, plan.to_arrival_R).squeeze(1);
}

StartedRows start_combine(const torch::Tensor& rows_RD, const DispatchPlan& plan,
                          Communicator& expert, Payload payload) {
  const torch::Tensor arrived_RD = plan.to_units_R.defined()
                                       ? permute_rows(rows_RD, plan.to_arrival_R, plan.to_units_R)
                                       : rows_RD;
  return start_rows(arrived_RD, plan.recv_rows, plan.send_rows, expert, payload);
}

torch::Tensor finish_combine(StartedRows started, const DispatchPlan& plan) {
  return sum_rows(finish_rows(std::move(started)), plan.index);
}

Dispatched dispatch(const torch::Tensor& x_TD, const TokenAssignments& assignments,
                    const UnitPlacement& placement, Communicator& expert) {
  Dispatched sent;
  sent.plan = plan_rows({assignments}, placement, expert).front();
  sent.rows_RD = finish_dispatch(start_dispatch(x_TD, sent.plan, expert), sent.plan);
  sent.weight_R = finish_weights(start_weights(sent.plan, expert), sent.plan);
  return sent;
}

torch::Tensor combine(const torch::Tensor& rows_RD, const Dispatched& sent, Communicator& expert) {
  const torch::Tensor weighted_RD = rows_RD * sent.weight_R.unsqueeze(1);
  return finish_combine(start_combine(weighted_RD, sent.plan, expert), sent.plan);
}

}  // namespace shoal
