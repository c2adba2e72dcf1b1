#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "moe/exchange/dispatch_plan.h"
#include "moe/exchange/exchange_options.h"
#include "parallel/comm/rank_grid.h"

namespace shoal {

/// How the rows of one chunk travel to the ranks of their units and back: in one level directly, in
/// two levels by way of one rank on each node.
///
/// In two levels a token is sent once to each node that holds units it is routed to, with its
/// combine weights: to the rank at its own rank's place on that node. That rank dispatches the rows
/// inside its node, sums the weighted outputs and sends one row back; the token's rank sums over
/// nodes. So each (token, other node) costs one row between nodes in each direction. Padding rows
/// stay at home. Sums over a token's units go node by node, so they may round differently from one
/// level; a node's partial sum is sent as `payload`. Source: Shazeer et al. 2017, section 3.1, and
/// for two levels DeepSeek-V3, section 3.2.2.
struct RowRoute {
  /// One all-to-all each way.
  struct Level {
    DispatchPlan plan;
    Communicator* comm;  ///< must outlive the graph
    Payload payload;
  };
  Level first;                  ///< in two levels: (token, node) pairs between nodes
  std::optional<Level> inside;  ///< in two levels: the pairs' rows inside this node
  torch::Tensor order_B;        ///< with `inside`: which arriving weight each of its rows has
};

/// The routes of a layer while counts of their rows are in flight.
class PendingRoutes {
 public:
  /// Waits for the counts and makes the plan of each route's last level; called once.
  using LastPlans = std::function<std::vector<DispatchPlan>()>;
  PendingRoutes(std::vector<RowRoute> routes, LastPlans last_plans)
      : routes_(std::move(routes)), last_plans_(std::move(last_plans)) {}

  /// Returns the level that start_dispatch needs. In one level it waits for the counts, in two for
  /// nothing. Throws CommError.
  const RowRoute::Level& first(size_t route);
  /// Waits for the counts and returns the complete routes; called once. Throws CommError.
  std::vector<RowRoute> wait() &&;

 private:
  void finish();

  std::vector<RowRoute> routes_;
  LastPlans last_plans_;  ///< empty once called
};

/// Starts a route for each chunk, or for each of `num_parts` parts of the units of the only chunk
/// (cut_into_pieces), which two levels do not offer. Two levels are taken if `options.hierarchical`
/// and the expert ranks are on more than one node.
///
/// Collective over the expert ranks, also with zero rows: one exchange of counts for all routes, in
/// two levels one on each level and for each chunk one of the choices. The last one is in flight
/// when this returns; on a GPU the host waits at most once for each count. A group of one rank
/// exchanges nothing and, on a GPU, copies nothing to the host; neither does one where all counts
/// are known (TokenAssignments::rows_per_unit_E). TORCH_CHECK if `placement` is of other units or
/// ranks. `grid` must outlive the graph.
PendingRoutes start_routes(const std::vector<TokenAssignments>& chunks,
                           const UnitPlacement& placement, const RankGrid& grid,
                           const ExchangeOptions& options, int64_t num_parts = 1);

}  // namespace shoal
