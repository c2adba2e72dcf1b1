#include "moe/exchange/node_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "moe/kernels/count_ids.h"
#include "runtime/device/device_copy.h"

// T tokens  N nodes  P (token, node) pairs of this rank  Q pairs that it takes in  A choices it
// sends  B choices it takes in  U units
namespace shoal {
namespace {

/// How often each value in [0, count) is there; others are left out.
torch::Tensor count_values(const torch::Tensor& values, int64_t count) {
  return count_ids(values.masked_fill(values >= count, -1), count);
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

/// The choices of a chunk as they go to nodes: sorted by node, token and unit. On a GPU padding
/// follows until `trim`.
struct NodeRows {
  torch::Tensor token_P;   ///< tokens of the pairs
  torch::Tensor unit_A;    ///< number of the unit on its node
  torch::Tensor pair_A;    ///< pair of each choice, counted from the first of its node
  torch::Tensor weight_A;  ///< differentiable
  torch::Tensor count_N2;  ///< pairs and choices of each node
  RowCounts pairs_N, choices_N;

  /// Takes the counts, and the padding away.
  void trim(RowCounts pairs, RowCounts choices) {
    pairs_N = std::move(pairs);
    choices_N = std::move(choices);
    token_P = token_P.narrow(0, 0, sum(pairs_N));
    for (torch::Tensor* tensor : {&unit_A, &pair_A, &weight_A}) {
      *tensor = tensor->narrow(0, 0, sum(choices_N));
    }
  }
};

NodeRows assign_to_nodes(const TokenAssignments& assignments, const NodeUnits& units,
                         int64_t num_nodes) {
  const torch::Device device = assignments.token_A.device();
  const torch::Tensor& token_A = assignments.token_A;
  const int64_t num_rows = token_A.size(0);
  const int64_t num_tokens = std::max<int64_t>(assignments.num_tokens, 1);
  const torch::Tensor row_A = torch::arange(num_rows, token_A.options());
  const auto num_units = static_cast<int64_t>(units.node_U.size());
  const torch::Tensor unit_A = torch::searchsorted(assignments.rows_U.cumsum(0), row_A,
                                                   /*out_int32=*/false, /*right=*/true)
                                   .clamp_max_(num_units - 1);
  const torch::Tensor node_A = send_to(units.node_U, device).index_select(0, unit_A);
  // Padding stands behind all. Choices come sorted by unit, and stay so within a pair.
  const torch::Tensor unsorted_A =
      (node_A * num_tokens + token_A).masked_fill_(token_A < 0, num_nodes * num_tokens);
  const auto [key_A, order_A] = unsorted_A.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const torch::Tensor begins_A = torch::ones({num_rows}, token_A.options());
  if (num_rows > 1) {
    begins_A.narrow(0, 1, num_rows - 1)
        .copy_(key_A.narrow(0, 1, num_rows - 1) != key_A.narrow(0, 0, num_rows - 1));
  }
  const torch::Tensor pair_A = begins_A.cumsum(0) - 1;
  const torch::Tensor sorted_node_A = key_A.div(num_tokens, "floor");
  NodeRows rows;
  // Choices of a pair write the same. What no pair takes stays padding.
  rows.token_P = torch::full_like(key_A, -1).scatter_(0, pair_A, key_A.remainder(num_tokens));
  rows.unit_A = send_to(units.local_U, device).index_select(0, unit_A.index_select(0, order_A));
  const torch::Tensor pairs_N =
      count_values(sorted_node_A.masked_fill(begins_A == 0, num_nodes), num_nodes);
  const torch::Tensor choices_N = count_values(sorted_node_A, num_nodes);
  rows.pair_A =
      pair_A - exclusive_sum(pairs_N).index_select(0, sorted_node_A.clamp_max(num_nodes - 1));
  rows.weight_A = assignments.weight_A.index_select(0, order_A);
  rows.count_N2 = torch::stack({pairs_N, choices_N}, 1);
  return rows;
}

/// What arrives of a chunk from each node.
struct Arrival {
  RowCounts pairs_N, choices_N;
};

/// Collective over `inter_node`: one exchange for all chunks, one wait of the host. Trims the rows.
std::vector<Arrival> exchange_counts(std::vector<NodeRows>& chunks, Communicator& inter_node) {
  const auto num_chunks = static_cast<int64_t>(chunks.size());
  std::vector<torch::Tensor> count_CN2;
  for (const NodeRows& rows : chunks) count_CN2.push_back(rows.count_N2);
  const RowCounts counts(static_cast<size_t>(inter_node.size()), 2 * num_chunks);
  const torch::Tensor sent_NC2 = torch::stack(count_CN2, 1);
  const torch::Tensor received_NC2 = torch::empty_like(sent_NC2);
  inter_node.start_all_to_all(sent_NC2.view({-1}), counts, received_NC2.view({-1}), counts).wait();
  HostCopy copy(torch::stack({sent_NC2, received_NC2}));
  const int64_t* count = copy.wait().const_data_ptr<int64_t>();
  inter_node.throw_if_failed();
  const auto column = [&](int64_t way, int64_t chunk, int64_t kind) {
    RowCounts by_node;
    for (int64_t node = 0; node < inter_node.size(); ++node) {
      by_node.push_back(count[((way * inter_node.size() + node) * num_chunks + chunk) * 2 + kind]);
    }
    return by_node;
  };
  std::vector<Arrival> arrivals;
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    chunks[static_cast<size_t>(chunk)].trim(column(0, chunk, 0), column(0, chunk, 1));
    arrivals.push_back({column(1, chunk, 0), column(1, chunk, 1)});
  }
  return arrivals;
}

/// The choices that arrive, as assignments of the rows that arrive to the node's own units.
/// Differentiable in the weights. Collective over `inter_node`.
TokenAssignments spread(const NodeRows& rows, const Arrival& arrival, int64_t num_units,
                        Communicator& inter_node) {
  const torch::Device device = rows.unit_A.device();
  const torch::Tensor choice_B2 = all_to_all(torch::stack({rows.unit_A, rows.pair_A}, 1),
                                             rows.choices_N, arrival.choices_N, inter_node);
  const torch::Tensor weight_B =
      all_to_all(rows.weight_A, rows.choices_N, arrival.choices_N, inter_node);
  std::vector<int64_t> first_N(arrival.pairs_N.size(), 0);
  std::partial_sum(arrival.pairs_N.begin(), arrival.pairs_N.end() - 1, first_N.begin() + 1);
  const torch::Tensor first_B =
      torch::repeat_interleave(send_to(first_N, device), send_to(arrival.choices_N, device),
                               /*dim=*/0, /*output_size=*/sum(arrival.choices_N));
  const torch::Tensor unit_B = choice_B2.select(1, 0).contiguous();
  const torch::Tensor order_B = unit_B.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  TokenAssignments spread;
  spread.token_A = (choice_B2.select(1, 1) + first_B).index_select(0, order_B);
  spread.weight_A = weight_B.index_select(0, order_B);
  spread.rows_U = count_values(unit_B, num_units);
  spread.num_tokens = sum(arrival.pairs_N);
  spread.num_kept = torch::full({}, unit_B.size(0), unit_B.options());
  return spread;
}

/// Pairs travel by `outer` between nodes, their rows by `inner` inside this one.
class NodeExchange : public RowExchange {
 public:
  /// The plan inside the node is that of a chunk.
  struct Inner {
    std::shared_ptr<DispatchPlans> plans;
    size_t chunk;
  };
  NodeExchange(DispatchPlan outer, Inner inner, const RankGrid& grid, Payload payload)
      : outer_(std::move(outer)), inner_(std::move(inner)), grid_(grid), payload_(payload) {}

  void start_dispatch(const torch::Tensor& x_TD) override {
    started_ = shoal::start_dispatch(x_TD, outer_, *grid_.inter_node, payload_);
  }
  ArrivedRows finish_dispatch() override {
    const torch::Tensor x_QD = shoal::finish_dispatch(std::move(started_), outer_);
    StartedRows started = shoal::start_dispatch(x_QD, inner(), *grid_.intra_node);
    StartedExchange weights = start_weights(inner(), *grid_.intra_node);
    const torch::Tensor rows_RD = shoal::finish_dispatch(std::move(started), inner());
    return {rows_RD, inner().rows_u, finish_weights(std::move(weights), inner())};
  }
  void start_combine(const torch::Tensor& rows_RD) override {
    const torch::Tensor y_QD =
        shoal::finish_combine(shoal::start_combine(rows_RD, inner(), *grid_.intra_node), inner());
    started_ = shoal::start_combine(y_QD, outer_, *grid_.inter_node, payload_);
  }
  torch::Tensor finish_combine() override {
    return shoal::finish_combine(std::move(started_), outer_);
  }

 private:
  const DispatchPlan& inner() const { return inner_.plans->get()[inner_.chunk]; }

  DispatchPlan outer_;
  Inner inner_;
  const RankGrid& grid_;
  Payload payload_;
  StartedRows started_;
};

}  // namespace

std::vector<std::unique_ptr<RowExchange>> plan_node_exchange(
    const std::vector<TokenAssignments>& chunks, const UnitPlacement& placement,
    const RankGrid& grid, Payload payload) {
  Communicator& inter_node = *grid.inter_node;
  const NodeUnits units = units_of_node(placement, inter_node.rank(), grid.intra_node->size());
  std::vector<NodeRows> rows;
  for (const TokenAssignments& chunk : chunks)
    rows.push_back(assign_to_nodes(chunk, units, inter_node.size()));
  const std::vector<Arrival> arrivals = exchange_counts(rows, inter_node);
  std::vector<TokenAssignments> inner;
  for (size_t c = 0; c < chunks.size(); ++c) {
    inner.push_back(spread(rows[c], arrivals[c], units.placement.num_units(), inter_node));
  }
  const auto inner_plans =
      std::make_shared<DispatchPlans>(inner, units.placement, *grid.intra_node);
  std::vector<std::unique_ptr<RowExchange>> exchanges;
  for (size_t c = 0; c < chunks.size(); ++c) {
    DispatchPlan outer;
    outer.index = make_row_index(rows[c].token_P, chunks[c].num_tokens);
    outer.send_rows = rows[c].pairs_N;
    outer.recv_rows = arrivals[c].pairs_N;
    exchanges.push_back(std::make_unique<NodeExchange>(
        std::move(outer), NodeExchange::Inner{inner_plans, c}, grid, payload));
  }
  return exchanges;
}

}  // namespace shoal
