#include <algorithm>
#include <numeric>
#include <utility>

#include "moe/exchange/row_route.h"
#include "moe/kernels/count_ids.h"
#include "runtime/device/device_copy.h"

// T tokens  N nodes  P (token, node) pairs of this rank  Q pairs it receives  A choices of this
// rank B choices it receives  U units
namespace shoal {
namespace {

/// How often each value in [0, count) occurs; larger ones are not counted.
torch::Tensor count_values(const torch::Tensor& values, int64_t count) {
  return count_ids(values.masked_fill(values >= count, -1), count);
}

/// Each unit's node, and its number among the units of that node.
struct NodeUnits {
  UnitPlacement placement;  ///< of this node's units, on its ranks
  std::vector<int64_t> local_U;
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

/// A chunk's choices as they are sent to nodes, sorted by node, then token, then unit, and its
/// (token, node) pairs, sorted by node, then token. On a GPU padding follows until the counts are
/// on the host.
struct NodeRows {
  torch::Tensor token_P;   ///< token of each pair
  torch::Tensor unit_A;    ///< unit of each choice, as its node numbers it
  torch::Tensor pair_A;    ///< pair of each choice, counted from the first of its node
  torch::Tensor weight_A;  ///< differentiable
  torch::Tensor count_N2;  ///< pairs and choices of each node
  DispatchPlan plan;       ///< between nodes: its rows are the pairs, its weights the choices'
};

/// The unit of each row, given that rows are sorted by unit.
torch::Tensor unit_of_rows(const TokenAssignments& assignments) {
  const torch::Tensor row_A =
      torch::arange(assignments.token_A.size(0), assignments.rows_U.options());
  return torch::searchsorted(assignments.rows_U.cumsum(0), row_A, /*out_int32=*/false,
                             /*right=*/true)
      .clamp_max_(assignments.rows_U.size(0) - 1);
}

/// 1 where a value differs from the one before it, and at the first; else 0.
torch::Tensor begins_run(const torch::Tensor& sorted_A) {
  const int64_t count = sorted_A.size(0);
  torch::Tensor begins_A = torch::ones_like(sorted_A);
  if (count < 2) return begins_A;
  begins_A.narrow(0, 1, count - 1)
      .copy_(sorted_A.narrow(0, 1, count - 1) != sorted_A.narrow(0, 0, count - 1));
  return begins_A;
}

/// Gives each choice the key node * T + token, equal for the choices of a pair, and sorts by it.
/// Two tokens, two nodes of two units each, token 0 routed to units 1, 2 and 3, token 1 to unit 0:
///   sorted keys      0 (token 0, node 0)  1 (token 1, node 0)  2 (token 0, node 1)  2
///   choices          unit 1               unit 0               unit 2               unit 3
///   pair, over all   0                    1                    2                    2
///   pair_A           0                    1                    0                    0
NodeRows assign_to_nodes(const TokenAssignments& assignments, const NodeUnits& units,
                         int64_t num_nodes) {
  const torch::Device device = assignments.token_A.device();
  const int64_t num_tokens = std::max<int64_t>(assignments.num_tokens, 1);
  const int64_t padding_key = num_nodes * num_tokens;  // after all pairs
  const torch::Tensor unit_A = unit_of_rows(assignments);
  const torch::Tensor node_A = send_to(units.node_U, device).index_select(0, unit_A);
  // Choices come sorted by unit, and a stable sort leaves them so within a pair.
  const auto [key_A, order_A] = (node_A * num_tokens + assignments.token_A)
                                    .masked_fill_(assignments.token_A < 0, padding_key)
                                    .sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const torch::Tensor begins_A = begins_run(key_A);
  const torch::Tensor pair_of_all_A = begins_A.cumsum(0) - 1;
  const torch::Tensor sorted_node_A = key_A.div(num_tokens, "floor");  // num_nodes: padding
  const torch::Tensor pairs_N =
      count_values(sorted_node_A.masked_fill(begins_A == 0, num_nodes), num_nodes);
  const torch::Tensor first_pair_N = pairs_N.cumsum(0) - pairs_N;
  NodeRows rows;
  // The choices of a pair write the same token. The places after the last pair stay padding.
  rows.token_P =
      torch::full_like(key_A, -1).scatter_(0, pair_of_all_A, key_A.remainder(num_tokens));
  rows.unit_A = send_to(units.local_U, device).index_select(0, unit_A.index_select(0, order_A));
  rows.pair_A =
      pair_of_all_A - first_pair_N.index_select(0, sorted_node_A.clamp_max(num_nodes - 1));
  rows.weight_A = assignments.weight_A.index_select(0, order_A);
  rows.count_N2 = torch::stack({pairs_N, count_values(sorted_node_A, num_nodes)}, 1);
  return rows;
}

/// Sets the chunks' plans and drops their padding. Collective over `inter_node`: one exchange for
/// all chunks, one wait of the host.
void exchange_counts(std::vector<NodeRows>& chunks, Communicator& inter_node) {
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
  const auto column = [&](int64_t direction, int64_t chunk, int64_t kind) {
    RowCounts by_node;
    for (int64_t node = 0; node < inter_node.size(); ++node) {
      by_node.push_back(
          count[((direction * inter_node.size() + node) * num_chunks + chunk) * 2 + kind]);
    }
    return by_node;
  };
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    NodeRows& rows = chunks[static_cast<size_t>(chunk)];
    DispatchPlan& plan = rows.plan;
    plan.send_rows = column(0, chunk, 0);
    plan.send_weights = column(0, chunk, 1);
    plan.recv_rows = column(1, chunk, 0);
    plan.recv_weights = column(1, chunk, 1);
    rows.token_P = rows.token_P.narrow(0, 0, sum(plan.send_rows));
    for (torch::Tensor* tensor : {&rows.unit_A, &rows.pair_A, &rows.weight_A}) {
      *tensor = tensor->narrow(0, 0, sum(plan.send_weights));
    }
  }
}

/// The choices that arrive, as assignments of the pairs that arrive to the node's own units.
struct InnerChoices {
  TokenAssignments assignments;  ///< without weights
  torch::Tensor order_B;         ///< which of the choices, as they arrive, each row is
};

/// Collective over `inter_node`.
InnerChoices exchange_choices(const NodeRows& rows, int64_t num_units, Communicator& inter_node) {
  const torch::Device device = rows.unit_A.device();
  const DispatchPlan& plan = rows.plan;
  const torch::Tensor choice_B2 = all_to_all(torch::stack({rows.unit_A, rows.pair_A}, 1),
                                             plan.send_weights, plan.recv_weights, inter_node);
  std::vector<int64_t> first_N(plan.recv_rows.size(), 0);
  std::partial_sum(plan.recv_rows.begin(), plan.recv_rows.end() - 1, first_N.begin() + 1);
  const torch::Tensor first_B =
      torch::repeat_interleave(send_to(first_N, device), send_to(plan.recv_weights, device),
                               /*dim=*/0, /*output_size=*/sum(plan.recv_weights));
  const torch::Tensor unit_B = choice_B2.select(1, 0).contiguous();
  InnerChoices inner;
  inner.order_B = unit_B.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  inner.assignments.token_A = (choice_B2.select(1, 1) + first_B).index_select(0, inner.order_B);
  inner.assignments.rows_U = count_values(unit_B, num_units);
  inner.assignments.num_tokens = sum(plan.recv_rows);
  inner.assignments.num_kept = torch::full({}, unit_B.size(0), unit_B.options());
  return inner;
}

/// Pairs are sent by `outer` between nodes, their rows by `inner` inside this one.
class NodeExchange : public RowExchange {
 public:
  /// order_B: as InnerChoices has it.
  NodeExchange(FlatExchange outer, FlatExchange inner, torch::Tensor order_B)
      : outer_(std::move(outer)), inner_(std::move(inner)), order_B_(std::move(order_B)) {}

  void start_dispatch(const torch::Tensor& x_TD) override { outer_.start_dispatch(x_TD); }
  ArrivedRows finish_dispatch() override {
    const ArrivedRows pairs = outer_.finish_dispatch();
    inner_.set_weights(pairs.weight_R.index_select(0, order_B_));
    inner_.start_dispatch(pairs.rows_RD);
    return inner_.finish_dispatch();
  }
  void start_combine(const torch::Tensor& rows_RD) override {
    inner_.start_combine(rows_RD);
    outer_.start_combine(inner_.finish_combine());
  }
  torch::Tensor finish_combine() override { return outer_.finish_combine(); }

 private:
  FlatExchange outer_, inner_;
  torch::Tensor order_B_;
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
  exchange_counts(rows, inter_node);
  std::vector<TokenAssignments> inner;
  std::vector<torch::Tensor> order_CB;
  for (const NodeRows& chunk : rows) {
    InnerChoices choices = exchange_choices(chunk, units.placement.num_units(), inter_node);
    inner.push_back(std::move(choices.assignments));
    order_CB.push_back(choices.order_B);
  }
  const PendingPlans inner_plans = start_plans(inner, units.placement, *grid.intra_node);
  std::vector<DispatchPlan> outer;
  for (size_t c = 0; c < chunks.size(); ++c) {
    rows[c].plan.index = make_row_index(rows[c].token_P, chunks[c].num_tokens);
    outer.push_back(rows[c].plan);
  }
  const PendingPlans outer_plans = ready_plans(std::move(outer));
  std::vector<std::unique_ptr<RowExchange>> exchanges;
  for (size_t c = 0; c < chunks.size(); ++c) {
    exchanges.push_back(std::make_unique<NodeExchange>(
        FlatExchange({outer_plans, c}, rows[c].weight_A, inter_node, payload),
        FlatExchange({inner_plans, c}, {}, *grid.intra_node, Payload::kSame), order_CB[c]));
  }
  return exchanges;
}

}  // namespace shoal
