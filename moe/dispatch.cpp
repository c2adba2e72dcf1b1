#include "moe/dispatch.h"

#include <algorithm>
#include <numeric>

#include "parallel/collectives.h"

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
void set_order(Dispatched& sent, const Assignments& assignments, const std::vector<int64_t>& rows_U,
               const UnitPlacement& placement) {
  sent.index = make_row_index(assignments.token_A, assignments.num_tokens);
  sent.weight_A = assignments.weight_A;
  if (placement.is_contiguous()) return;
  const std::vector<int64_t> order = send_order(rows_U, placement);
  const torch::Device device = assignments.token_A.device();
  const torch::Tensor order_A = to_tensor(order, device);
  sent.index.token_A = sent.index.token_A.index_select(0, order_A);
  sent.index.row_A = to_tensor(inverse(order), device).index_select(0, sent.index.row_A);
  sent.weight_A = sent.weight_A.index_select(0, order_A);
}

/// Counts by (source rank, unit on this rank).
std::vector<int64_t> exchange_counts(const std::vector<int64_t>& counts,
                                     const RowCounts& units_per_rank, Communicator& expert) {
  const int64_t own = units_per_rank[static_cast<size_t>(expert.rank())];
  const RowCounts recv(static_cast<size_t>(expert.size()), own);
  torch::Tensor received = torch::empty({own * expert.size()}, torch::kInt64);
  expert.start_all_to_all(torch::tensor(counts, torch::kInt64), units_per_rank, received, recv)
      .wait();
  return to_host(received);
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

/// What arrives, and how it is sorted by unit.
void set_arrival(Dispatched& sent, const std::vector<int64_t>& counts, int64_t num_ranks,
                 const torch::Device& device) {
  const auto num_units = static_cast<int64_t>(counts.size()) / num_ranks;
  sent.recv_rows =
      sum_runs(counts, std::vector<int64_t>(static_cast<size_t>(num_ranks), num_units));
  sent.rows_u.assign(static_cast<size_t>(num_units), 0);
  for (size_t i = 0; i < counts.size(); ++i) {
    sent.rows_u[i % static_cast<size_t>(num_units)] += counts[i];
  }
  const std::vector<int64_t> order = unit_order(counts, num_ranks);
  if (std::is_sorted(order.begin(), order.end())) return;
  sent.to_units_R = to_tensor(order, device);
  sent.to_arrival_R = to_tensor(inverse(order), device);
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

Dispatched dispatch(const torch::Tensor& x_TD, const Assignments& assignments,
                    const UnitPlacement& placement, Communicator& expert) {
  TORCH_CHECK(placement.num_ranks() == expert.size(), "dispatch: units are placed on ",
              placement.num_ranks(), " ranks, the group has ", expert.size());
  Dispatched sent;
  const std::vector<int64_t> rows_U = to_host(assignments.rows_U);
  TORCH_CHECK(static_cast<int64_t>(rows_U.size()) == placement.num_units(),
              "dispatch: ", rows_U.size(), " units in the assignments, ", placement.num_units(),
              " placed");
  set_order(sent, assignments, rows_U, placement);
  const torch::Tensor sent_AD = gather_rows(x_TD, sent.index);
  if (expert.size() == 1) {
    sent.rows_u = rows_U;
    sent.rows_RD = sent_AD;
    return sent;
  }
  const std::vector<int64_t> counts = counts_by_rank(rows_U, placement);
  const RowCounts units_per_rank = placement.num_units_of_ranks();
  sent.send_rows = sum_runs(counts, units_per_rank);
  set_arrival(sent, exchange_counts(counts, units_per_rank, expert), expert.size(), x_TD.device());
  sent.rows_RD = all_to_all(sent_AD, sent.send_rows, sent.recv_rows, expert);
  if (sent.to_units_R.defined()) {
    sent.rows_RD = permute_rows(sent.rows_RD, sent.to_units_R, sent.to_arrival_R);
  }
  return sent;
}

torch::Tensor combine(const torch::Tensor& rows_RD, const Dispatched& sent, Communicator& expert) {
  torch::Tensor rows_AD = rows_RD;
  if (sent.to_units_R.defined()) {
    rows_AD = permute_rows(rows_AD, sent.to_arrival_R, sent.to_units_R);
  }
  if (expert.size() > 1) rows_AD = all_to_all(rows_AD, sent.recv_rows, sent.send_rows, expert);
  return combine_rows(rows_AD, sent.weight_A, sent.index);
}

}  // namespace shoal
