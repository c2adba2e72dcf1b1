#include "moe/node_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

// T tokens  N nodes  P (token, node) pairs of this rank  Q pairs that it takes in  A choices it
// sends  B choices it takes in  U units
namespace shoal {
namespace {

int64_t sum(const RowCounts& rows) { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }

torch::Tensor to_tensor(const std::vector<int64_t>& values, const torch::Device& device) {
  return torch::tensor(values, torch::kInt64).to(device);
}

std::vector<int64_t> to_host(const torch::Tensor& values) {
  const torch::Tensor host = values.to(torch::kCPU, torch::kInt64).contiguous();
  const int64_t* data = host.const_data_ptr<int64_t>();
  return {data, data + host.numel()};
}

/// Where this node's units live, among its ranks, and under which number each unit goes there.
struct NodeUnits {
  UnitPlacement placement;
  std::vector<int64_t> local_U;  ///< on its own node
  std::vector<int64_t> node_U;
};

NodeUnits units_of_node(const UnitPlacement& placement, int64_t node, int64_t ranks_per_node) {
  std::vector<int64_t> local_U, node_U, local_rank;
  std::vector<int64_t> units_of(static_cast<size_t>(placement.num_ranks() / ranks_per_node), 0);
  for (const int64_t rank : placement.rank_of_unit()) {
    node_U.push_back(rank / ranks_per_node);
    local_U.push_back(units_of[static_cast<size_t>(node_U.back())]++);
    if (node_U.back() == node) local_rank.push_back(rank % ranks_per_node);
  }
  return {UnitPlacement(local_rank, ranks_per_node), local_U, node_U};
}

/// The choices of a chunk as they go to nodes: sorted by node, token and unit.
struct NodeRows {
  RowIndex index;          ///< tokens of the pairs
  torch::Tensor unit_A;    ///< number of the unit on its node
  torch::Tensor pair_A;    ///< pair of each choice, counted from the first of its node
  torch::Tensor weight_A;  ///< differentiable
  RowCounts pairs_N, choices_N;
};

NodeRows rows_of_nodes(const Assignments& assignments, const NodeUnits& units, int64_t num_nodes) {
  const torch::Device device = assignments.token_A.device();
  const torch::Tensor unit = torch::repeat_interleave(assignments.rows_U);
  const torch::Tensor is_row = (assignments.token_A >= 0).nonzero().squeeze(1);
  const torch::Tensor unit_A = unit.index_select(0, is_row);
  const torch::Tensor node_A = to_tensor(units.node_U, device).index_select(0, unit_A);
  const torch::Tensor token_A = assignments.token_A.index_select(0, is_row);
  const int64_t num_tokens = std::max<int64_t>(assignments.num_tokens, 1);
  // Choices come sorted by unit, and stay so within a pair.
  const auto [key_A, order_A] =
      (node_A * num_tokens + token_A).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const auto [key_P, pair_A, choices_P] =
      at::unique_consecutive(key_A, /*return_inverse=*/true, /*return_counts=*/true);
  const torch::Tensor node_P = key_P.div(num_tokens, "floor");
  NodeRows rows;
  rows.index = make_row_index(key_P.remainder(num_tokens), assignments.num_tokens);
  rows.unit_A = to_tensor(units.local_U, device).index_select(0, unit_A.index_select(0, order_A));
  const torch::Tensor pairs_N = node_P.bincount({}, num_nodes);
  const torch::Tensor first_N = pairs_N.cumsum(0) - pairs_N;
  rows.pair_A = pair_A - first_N.index_select(0, node_A.index_select(0, order_A));
  rows.weight_A = assignments.weight_A.index_select(0, is_row.index_select(0, order_A));
  rows.pairs_N = to_host(pairs_N);
  rows.choices_N = to_host(node_A.bincount({}, num_nodes));
  return rows;
}

/// What arrives of a chunk from each node.
struct Arrival {
  RowCounts pairs_N, choices_N;
};

/// Collective over `rail`: one exchange for all chunks.
std::vector<Arrival> exchange_counts(const std::vector<NodeRows>& chunks, Communicator& rail) {
  const auto num_chunks = static_cast<int64_t>(chunks.size());
  std::vector<int64_t> sent;  // by node, chunk, kind
  for (size_t node = 0; node < static_cast<size_t>(rail.size()); ++node) {
    for (const NodeRows& rows : chunks) {
      sent.insert(sent.end(), {rows.pairs_N[node], rows.choices_N[node]});
    }
  }
  const RowCounts counts(static_cast<size_t>(rail.size()), 2 * num_chunks);
  const torch::Tensor received = torch::empty({rail.size(), num_chunks, 2}, torch::kInt64);
  rail.start_all_to_all(torch::tensor(sent, torch::kInt64), counts, received.view({-1}), counts)
      .wait();
  std::vector<Arrival> arrivals;
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    arrivals.push_back({to_host(received.select(1, chunk).select(1, 0)),
                        to_host(received.select(1, chunk).select(1, 1))});
  }
  return arrivals;
}

/// The choices that arrive, as assignments of the rows that arrive to the node's own units.
/// Differentiable in the weights. Collective over `rail`.
Assignments spread(const NodeRows& rows, const Arrival& arrival, int64_t num_units,
                   Communicator& rail) {
  const torch::Device device = rows.unit_A.device();
  const torch::Tensor choice_B2 = all_to_all(torch::stack({rows.unit_A, rows.pair_A}, 1),
                                             rows.choices_N, arrival.choices_N, rail);
  const torch::Tensor weight_B = all_to_all(rows.weight_A, rows.choices_N, arrival.choices_N, rail);
  std::vector<int64_t> first_N(arrival.pairs_N.size(), 0);
  std::partial_sum(arrival.pairs_N.begin(), arrival.pairs_N.end() - 1, first_N.begin() + 1);
  const torch::Tensor first_B =
      torch::repeat_interleave(to_tensor(first_N, device), to_tensor(arrival.choices_N, device));
  const torch::Tensor unit_B = choice_B2.select(1, 0).contiguous();
  const torch::Tensor order_B = unit_B.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  Assignments spread;
  spread.token_A = (choice_B2.select(1, 1) + first_B).index_select(0, order_B);
  spread.weight_A = weight_B.index_select(0, order_B);
  spread.rows_U = unit_B.bincount({}, num_units);
  spread.num_tokens = sum(arrival.pairs_N);
  spread.num_kept = unit_B.size(0);
  return spread;
}

/// Pairs travel by `outer` between nodes, their rows by `inner` inside this one.
class NodeExchange : public RowExchange {
 public:
  NodeExchange(RowPlan outer, RowPlan inner, const RankGrid& grid, Payload payload)
      : outer_(std::move(outer)), inner_(std::move(inner)), grid_(grid), payload_(payload) {}

  void start_dispatch(const torch::Tensor& x_TD) override {
    started_ = shoal::start_dispatch(x_TD, outer_, *grid_.rail, payload_);
  }
  ArrivedRows finish_dispatch() override {
    const torch::Tensor x_QD = shoal::finish_dispatch(std::move(started_), outer_);
    StartedRows started = shoal::start_dispatch(x_QD, inner_, *grid_.node);
    return {shoal::finish_dispatch(std::move(started), inner_), inner_.rows_u};
  }
  void start_combine(const torch::Tensor& rows_RD) override {
    const torch::Tensor y_QD = combine(rows_RD, inner_, *grid_.node);
    started_ = shoal::start_combine(y_QD, outer_, *grid_.rail, payload_);
  }
  torch::Tensor finish_combine() override {
    return shoal::finish_combine(std::move(started_), outer_);
  }

 private:
  RowPlan outer_, inner_;
  const RankGrid& grid_;
  Payload payload_;
  StartedRows started_;
};

}  // namespace

std::vector<std::unique_ptr<RowExchange>> plan_node_exchange(const std::vector<Assignments>& chunks,
                                                             const UnitPlacement& placement,
                                                             const RankGrid& grid,
                                                             Payload payload) {
  Communicator& rail = *grid.rail;
  const NodeUnits units = units_of_node(placement, rail.rank(), grid.node->size());
  std::vector<NodeRows> rows;
  for (const Assignments& chunk : chunks) rows.push_back(rows_of_nodes(chunk, units, rail.size()));
  const std::vector<Arrival> arrivals = exchange_counts(rows, rail);
  std::vector<Assignments> inner;
  for (size_t c = 0; c < chunks.size(); ++c) {
    inner.push_back(spread(rows[c], arrivals[c], units.placement.num_units(), rail));
  }
  std::vector<RowPlan> inner_plans = plan_rows(inner, units.placement, *grid.node);
  std::vector<std::unique_ptr<RowExchange>> exchanges;
  for (size_t c = 0; c < chunks.size(); ++c) {
    RowPlan outer;
    outer.weight_A = torch::ones({sum(rows[c].pairs_N)}, chunks[c].weight_A.options());
    outer.index = std::move(rows[c].index);
    outer.send_rows = rows[c].pairs_N;
    outer.recv_rows = arrivals[c].pairs_N;
    exchanges.push_back(
        std::make_unique<NodeExchange>(std::move(outer), std::move(inner_plans[c]), grid, payload));
  }
  return exchanges;
}

}  // namespace shoal
