#include "moe/exchange/row_route.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "moe/kernels/count_ids.h"
#include "parallel/comm/collectives.h"
#include "runtime/device/device_copy.h"

// T tokens  C pieces  N nodes  E ranks  P (token, node) pairs of this rank  A choices of this rank
// B choices it receives  U units  V units in the order of their ranks  u units on this rank
namespace shoal {
namespace {

/// Tells each rank how many rows the others send to its units: one all-to-all for all pieces, and
/// the copy of its result to the host. Both are in flight, in the order of the stream, until the
/// result is called, once: it blocks the host until the counts are there. Throws CommError.
/// Collective over `comm`, which must outlive the result.
std::function<DispatchCounts()> start_counts(const torch::Tensor& sent_CV,
                                             const RowCounts& units_of_rank, Communicator& comm) {
  const int64_t num_pieces = sent_CV.size(0);
  const int64_t own = units_of_rank[static_cast<size_t>(comm.rank())];
  RowCounts send;
  for (const int64_t units : units_of_rank) send.push_back(units * num_pieces);
  torch::Tensor by_rank = sent_CV.contiguous().flatten();
  if (num_pieces > 1) {
    std::vector<torch::Tensor> parts = sent_CV.split_with_sizes(units_of_rank, 1);
    for (torch::Tensor& counts_Cu : parts) counts_Cu = counts_Cu.flatten();
    by_rank = torch::cat(parts);
  }
  const torch::Tensor received_ECu =
      torch::empty({comm.size(), num_pieces, own}, sent_CV.options());
  const auto exchange = std::make_shared<Pending>(comm.start_all_to_all(
      by_rank, send, received_ECu.view({-1}), RowCounts(send.size(), own * num_pieces)));
  const auto copy = [=] {
    exchange->wait();
    return std::make_shared<HostCopy>(torch::cat({sent_CV.flatten(), received_ECu.flatten()}));
  };
  const std::shared_ptr<HostCopy> started = sent_CV.is_cpu() ? nullptr : copy();
  return [=, &comm] {
    const torch::Tensor counts = (started ? started : copy())->wait();
    comm.throw_if_failed();
    const int64_t* first = counts.const_data_ptr<int64_t>();
    const int64_t* received = first + sent_CV.numel();
    return DispatchCounts{{first, received}, {received, first + counts.numel()}, received_ECu};
  };
}

/// Starts the exchange of counts for the plans of one level's pieces. Collective over `comm`.
PendingRoutes::LastPlans start_plans(const std::vector<TokenAssignments>& chunks,
                                     const UnitPlacement& placement, Communicator& comm,
                                     const SentTokens& tokens) {
  const int64_t num_parts = tokens.num_parts;
  std::vector<Piece> pieces = cut_into_pieces(chunks, placement, num_parts);
  TORCH_CHECK(placement.num_ranks() == comm.size(), "dispatch: units are placed on ",
              placement.num_ranks(), " ranks, the group has ", comm.size());
  std::vector<DispatchPlan> plans;
  if (comm.size() == 1) {
    TORCH_CHECK(num_parts == 1, "dispatch: ", num_parts, " parts of units on one rank, expected 1");
    for (const TokenAssignments& chunk : chunks) plans.push_back(plan_on_one_rank(chunk));
  } else if (has_known_counts(pieces)) {
    plans =
        make_plans(pieces, placement, known_counts(pieces, placement, comm.rank()), tokens.type);
  } else {
    const auto counts =
        start_counts(rows_to_send(pieces, placement), placement.num_units_of_ranks(), comm);
    for (Piece& piece : pieces) index_rows(piece);  // while the counts travel
    return [=] { return make_plans(pieces, placement, counts(), tokens.type); };
  }
  return [plans] { return plans; };
}

/// The units as nodes number them: each one's node, and its number among the units of that node.
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

/// A chunk's choices as sent to nodes, sorted by node, then token, then unit, and its (token, node)
/// pairs, sorted by node, then token. On a GPU padding follows until the counts are on the host.
struct NodeRows {
  torch::Tensor token_P;   ///< token of each pair
  torch::Tensor unit_A;    ///< unit of each choice, as its node numbers it
  torch::Tensor pair_A;    ///< pair of each choice, counted from the first of its node
  torch::Tensor count_N2;  ///< pairs and choices of each node
  DispatchPlan plan;       ///< between nodes: its rows are the pairs, its weights the choices'
};

/// Returns the unit of each row, given that rows are sorted by unit.
torch::Tensor unit_of_rows(const TokenAssignments& assignments) {
  const torch::Tensor row_A =
      torch::arange(assignments.token_A.size(0), assignments.rows_U.options());
  return torch::searchsorted(assignments.rows_U.cumsum(0), row_A, /*out_int32=*/false,
                             /*right=*/true)
      .clamp_max_(assignments.rows_U.size(0) - 1);
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
  // 1 where a pair begins, else 0.
  const torch::Tensor begins_A = key_A.diff(1, 0, torch::full({1}, -1, key_A.options())).ne_(0);
  const torch::Tensor pair_of_all_A = begins_A.cumsum(0) - 1;
  torch::Tensor sorted_node_A = key_A.div(num_tokens, "floor");
  sorted_node_A.masked_fill_(sorted_node_A == num_nodes, -1);  // padding
  const torch::Tensor pairs_N = count_ids(sorted_node_A.masked_fill(begins_A == 0, -1), num_nodes);
  const torch::Tensor first_pair_N = pairs_N.cumsum(0) - pairs_N;
  NodeRows rows;
  // The choices of a pair write the same token. The places after the last pair stay padding.
  rows.token_P =
      torch::full_like(key_A, -1).scatter_(0, pair_of_all_A, key_A.remainder(num_tokens));
  rows.unit_A = send_to(units.local_U, device).index_select(0, unit_A.index_select(0, order_A));
  rows.pair_A = pair_of_all_A - first_pair_N.index_select(0, sorted_node_A.clamp_min(0));
  rows.plan.order_A = order_A;
  rows.count_N2 = torch::stack({pairs_N, count_ids(sorted_node_A, num_nodes)}, 1);
  return rows;
}

/// Sets the chunks' plans and drops padding. Collective over `inter_node`: one exchange, one wait.
void exchange_counts(std::vector<NodeRows>& chunks, Communicator& inter_node) {
  const auto num_nodes = static_cast<size_t>(inter_node.size());
  std::vector<torch::Tensor> count_CN2;
  for (const NodeRows& rows : chunks) count_CN2.push_back(rows.count_N2.flatten());
  const DispatchCounts counts =
      start_counts(torch::stack(count_CN2), RowCounts(num_nodes, 2), inter_node)();
  for (size_t c = 0; c < chunks.size(); ++c) {
    NodeRows& rows = chunks[c];
    for (size_t node = 0; node < num_nodes; ++node) {
      const auto sent = counts.sent_CV.begin() + 2 * (c * num_nodes + node);
      const auto received = counts.received_ECu.begin() + 2 * (node * chunks.size() + c);
      rows.plan.send_rows.push_back(sent[0]);
      rows.plan.send_weights.push_back(sent[1]);
      rows.plan.recv_rows.push_back(received[0]);
      rows.plan.recv_weights.push_back(received[1]);
    }
    rows.token_P = rows.token_P.narrow(0, 0, sum(rows.plan.send_rows));
    for (torch::Tensor* tensor : {&rows.unit_A, &rows.pair_A, &rows.plan.order_A}) {
      *tensor = tensor->narrow(0, 0, sum(rows.plan.send_weights));
    }
  }
}

/// Choices that arrived at a node: their pairs' assignments to the node's own units, without
/// choice_A and weights, and which choice each of these rows is.
struct ArrivedChoices {
  TokenAssignments inside;
  torch::Tensor order_B;
};

/// Sends the choices to their nodes. Collective over `inter_node`.
ArrivedChoices exchange_choices(const NodeRows& rows, int64_t num_units, Communicator& inter_node) {
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
  TokenAssignments inside;
  const torch::Tensor order_B = unit_B.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  inside.token_A = (choice_B2.select(1, 1) + first_B).index_select(0, order_B);
  inside.rows_U = count_ids(unit_B, num_units);
  inside.num_tokens = sum(plan.recv_rows);
  return {std::move(inside), order_B};
}

PackedType sent_type(PackedType type, Payload payload) {
  if (payload == Payload::kBfloat16) type.row = torch::kBFloat16;
  return type;
}

/// Starts routes in two levels.
PendingRoutes start_node_routes(const std::vector<TokenAssignments>& chunks,
                                const UnitPlacement& placement, const RankGrid& grid,
                                Payload payload, const SentTokens& tokens) {
  Communicator& inter_node = *grid.inter_node;
  const NodeUnits units = units_of_node(placement, inter_node.rank(), grid.intra_node->size());
  std::vector<NodeRows> rows;
  for (const TokenAssignments& chunk : chunks)
    rows.push_back(assign_to_nodes(chunk, units, inter_node.size()));
  exchange_counts(rows, inter_node);
  std::vector<RowRoute> routes;
  std::vector<TokenAssignments> inside;
  for (const NodeRows& chunk : rows) {
    ArrivedChoices arrived = exchange_choices(chunk, units.placement.num_units(), inter_node);
    inside.push_back(std::move(arrived.inside));
    routes.push_back({{chunk.plan, &inter_node, payload},
                      RowRoute::Level{{}, grid.intra_node.get(), Payload::kSame},
                      arrived.order_B});
  }
  const auto last_plans = start_plans(inside, units.placement, *grid.intra_node, tokens);
  for (size_t c = 0; c < chunks.size(); ++c) {
    DispatchPlan& plan = routes[c].first.plan;
    plan.index = make_row_index(rows[c].token_P, chunks[c].num_tokens);
    lay_out(plan, sent_type(tokens.type, payload));
  }
  return {std::move(routes), last_plans};
}

}  // namespace

const RowRoute::Level& PendingRoutes::first(size_t route) {
  if (!routes_[route].inside) finish();
  return routes_[route].first;
}

std::vector<RowRoute> PendingRoutes::wait() && {
  finish();
  return std::move(routes_);
}

void PendingRoutes::finish() {
  if (!last_plans_) return;
  std::vector<DispatchPlan> plans = std::exchange(last_plans_, {})();
  for (size_t i = 0; i < routes_.size(); ++i) {
    RowRoute& route = routes_[i];
    (route.inside ? *route.inside : route.first).plan = std::move(plans[i]);
  }
}

PendingRoutes start_routes(const std::vector<TokenAssignments>& chunks,
                           const UnitPlacement& placement, const RankGrid& grid,
                           const ExchangeOptions& options, const SentTokens& tokens) {
  const int64_t num_parts = tokens.num_parts;
  if (options.hierarchical && grid.num_nodes() > 1) {
    TORCH_CHECK(num_parts == 1, "exchange: ", num_parts,
                " parts of units in two levels, expected 1");
    return start_node_routes(chunks, placement, grid, options.payload, tokens);
  }
  TORCH_CHECK(num_parts == 1 || chunks.size() == 1, "exchange: ", chunks.size(), " chunks in ",
              num_parts, " parts, expected 1 of either");
  const RowRoute route{{{}, grid.expert.get(), options.payload}, {}, {}};
  return {std::vector<RowRoute>(chunks.size() * static_cast<size_t>(num_parts), route),
          start_plans(chunks, placement, *grid.expert,
                      {sent_type(tokens.type, options.payload), num_parts})};
}

}  // namespace shoal
