#include "moe/dispatch.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace shoal {
namespace {

std::vector<int64_t> to_host(const torch::Tensor& counts) {
  const torch::Tensor host = counts.to(torch::kCPU, torch::kInt64).contiguous();
  const int64_t* data = host.const_data_ptr<int64_t>();
  return {data, data + host.numel()};
}

torch::Tensor to_tensor(const std::vector<int64_t>& values, const torch::Device& device) {
  return torch::tensor(values, torch::kInt64).to(device);
}

/// Row counts by destination rank, then by unit on it.
std::vector<int64_t> counts_by_rank(const std::vector<int64_t>& rows_U,
                                    const UnitPlacement& placement) {
  std::vector<int64_t> counts;
  for (const int64_t unit : placement.units_by_rank()) {
    counts.push_back(rows_U[static_cast<size_t>(unit)]);
  }
  return counts;
}

/// For rows sorted by unit: entry i is the row that is sent as the i-th.
std::vector<int64_t> send_order(const std::vector<int64_t>& rows_U,
                                const UnitPlacement& placement) {
  std::vector<int64_t> first(rows_U.size() + 1, 0);
  std::partial_sum(rows_U.begin(), rows_U.end(), first.begin() + 1);
  std::vector<int64_t> order;
  for (const int64_t unit : placement.units_by_rank()) {
    const auto u = static_cast<size_t>(unit);
    for (int64_t row = first[u]; row < first[u + 1]; ++row) order.push_back(row);
  }
  return order;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> result(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    result[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return result;
}

/// Tokens and weights in the order they are sent. A token's rows stay listed by unit, so that sums
/// over them do not depend on where units live.
void set_order(RowPlan& plan, const Assignments& assignments, const std::vector<int64_t>& rows_U,
               const UnitPlacement& placement) {
  plan.index = make_row_index(assignments.token_A, assignments.num_tokens);
  plan.weight_A = assignments.weight_A;
  if (placement.is_contiguous()) return;
  const std::vector<int64_t> order = send_order(rows_U, placement);
  const torch::Device device = assignments.token_A.device();
  const torch::Tensor order_A = to_tensor(order, device);
  plan.index.token_A = plan.index.token_A.index_select(0, order_A);
  plan.index.row_A = to_tensor(inverse(order), device).index_select(0, plan.index.row_A);
  plan.weight_A = plan.weight_A.index_select(0, order_A);
}

/// Without the padding behind the units' rows, which there is on a GPU.
Assignments rows_of_units(Assignments assignments, const std::vector<int64_t>& rows_U) {
  const int64_t num_rows = std::accumulate(rows_U.begin(), rows_U.end(), int64_t{0});
  if (num_rows == assignments.token_A.size(0)) return assignments;
  for (torch::Tensor* tensor :
       {&assignments.token_A, &assignments.choice_A, &assignments.weight_A}) {
    *tensor = tensor->narrow(0, 0, num_rows);
  }
  return assignments;
}

/// Sums of `counts` over runs that are `lengths` long.
RowCounts sum_runs(const std::vector<int64_t>& counts, const std::vector<int64_t>& lengths) {
  RowCounts sums;
  auto run = counts.begin();
  for (const int64_t length : lengths) {
    sums.push_back(std::accumulate(run, run + length, int64_t{0}));
    run += length;
  }
  return sums;
}

/// One list of counts a chunk, each by (source rank, unit on this rank), from lists by (destination
/// rank, unit on it).
std::vector<std::vector<int64_t>> exchange_counts(const std::vector<std::vector<int64_t>>& chunks,
                                                  const RowCounts& units_per_rank,
                                                  Communicator& expert) {
  const auto num_chunks = static_cast<int64_t>(chunks.size());
  const int64_t own = units_per_rank[static_cast<size_t>(expert.rank())];
  std::vector<int64_t> sent;  // by rank, chunk, unit
  RowCounts send, recv(static_cast<size_t>(expert.size()), own * num_chunks);
  int64_t first = 0;
  for (const int64_t units : units_per_rank) {
    for (const std::vector<int64_t>& counts : chunks) {
      sent.insert(sent.end(), counts.begin() + first, counts.begin() + first + units);
    }
    send.push_back(units * num_chunks);
    first += units;
  }
  const torch::Tensor received = torch::empty({expert.size(), num_chunks, own}, torch::kInt64);
  expert.start_all_to_all(torch::tensor(sent, torch::kInt64), send, received.view({-1}), recv)
      .wait();
  std::vector<std::vector<int64_t>> result;
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    result.push_back(to_host(received.select(1, chunk)));
  }
  return result;
}

/// What arrives, and how it is sorted by unit.
void set_arrival(RowPlan& plan, const std::vector<int64_t>& counts, int64_t num_ranks,
                 const torch::Device& device) {
  const auto num_units = static_cast<int64_t>(counts.size()) / num_ranks;
  plan.recv_rows =
      sum_runs(counts, std::vector<int64_t>(static_cast<size_t>(num_ranks), num_units));
  plan.rows_u.assign(static_cast<size_t>(num_units), 0);
  for (size_t i = 0; i < counts.size(); ++i) {
    plan.rows_u[i % static_cast<size_t>(num_units)] += counts[i];
  }
  if (num_ranks == 1 || num_units <= 1) return;
  const std::vector<int64_t> order = unit_order(counts, num_ranks);
  if (std::is_sorted(order.begin(), order.end())) return;
  plan.to_units_R = to_tensor(order, device);
  plan.to_arrival_R = to_tensor(inverse(order), device);
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

std::vector<int64_t> unit_order(const std::vector<int64_t>& counts, int64_t num_ranks) {
  TORCH_CHECK(num_ranks >= 1 && counts.size() % static_cast<size_t>(num_ranks) == 0, counts.size(),
              " counts from ", num_ranks, " ranks");
  const size_t num_units = counts.size() / static_cast<size_t>(num_ranks);
  std::vector<int64_t> first(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), first.begin() + 1);
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(first.back()));
  for (size_t unit = 0; unit < num_units; ++unit) {
    for (size_t block = unit; block < counts.size(); block += num_units) {
      for (int64_t row = first[block]; row < first[block + 1]; ++row) order.push_back(row);
    }
  }
  return order;
}

std::vector<RowPlan> plan_rows(const std::vector<Assignments>& chunks,
                               const UnitPlacement& placement, Communicator& expert) {
  TORCH_CHECK(placement.num_ranks() == expert.size(), "dispatch: units are placed on ",
              placement.num_ranks(), " ranks, the group has ", expert.size());
  const RowCounts units_per_rank = placement.num_units_of_ranks();
  std::vector<RowPlan> plans(chunks.size());
  std::vector<std::vector<int64_t>> counts;
  for (size_t c = 0; c < chunks.size(); ++c) {
    const std::vector<int64_t> rows_U = to_host(chunks[c].rows_U);
    TORCH_CHECK(static_cast<int64_t>(rows_U.size()) == placement.num_units(),
                "dispatch: ", rows_U.size(), " units in the assignments, ", placement.num_units(),
                " placed");
    set_order(plans[c], rows_of_units(chunks[c], rows_U), rows_U, placement);
    counts.push_back(counts_by_rank(rows_U, placement));
    plans[c].send_rows = sum_runs(counts.back(), units_per_rank);
  }
  if (expert.size() > 1) counts = exchange_counts(counts, units_per_rank, expert);
  for (size_t c = 0; c < chunks.size(); ++c) {
    set_arrival(plans[c], counts[c], expert.size(), chunks[c].token_A.device());
  }
  return plans;
}

StartedRows start_dispatch(const torch::Tensor& x_TD, const RowPlan& plan, Communicator& expert,
                           Payload payload) {
  return start_rows(gather_rows(x_TD, plan.index), plan.send_rows, plan.recv_rows, expert, payload);
}

torch::Tensor finish_dispatch(StartedRows started, const RowPlan& plan) {
  const torch::Tensor rows_RD = finish_rows(std::move(started));
  if (!plan.to_units_R.defined()) return rows_RD;
  return permute_rows(rows_RD, plan.to_units_R, plan.to_arrival_R);
}

StartedRows start_combine(const torch::Tensor& rows_RD, const RowPlan& plan, Communicator& expert,
                          Payload payload) {
  const torch::Tensor arrived_RD = plan.to_units_R.defined()
                                       ? permute_rows(rows_RD, plan.to_arrival_R, plan.to_units_R)
                                       : rows_RD;
  return start_rows(arrived_RD, plan.recv_rows, plan.send_rows, expert, payload);
}

torch::Tensor finish_combine(StartedRows started, const RowPlan& plan) {
  return combine_rows(finish_rows(std::move(started)), plan.weight_A, plan.index);
}

Dispatched dispatch(const torch::Tensor& x_TD, const Assignments& assignments,
                    const UnitPlacement& placement, Communicator& expert) {
  Dispatched sent;
  sent.plan = plan_rows({assignments}, placement, expert).front();
  sent.rows_RD = finish_dispatch(start_dispatch(x_TD, sent.plan, expert), sent.plan);
  return sent;
}

torch::Tensor combine(const torch::Tensor& rows_RD, const RowPlan& plan, Communicator& expert) {
  return finish_combine(start_combine(rows_RD, plan, expert), plan);
}

}  // namespace shoal
