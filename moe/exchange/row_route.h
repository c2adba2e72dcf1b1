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

/// How a chunk's rows travel to the ranks of their units (experts) and back: directly (one level)
/// or through one rank on each node (two levels). A row is one token on its way to one unit.
///
/// In two levels a token is sent once to each node with units it is routed to, together with the
/// combine weights of these units. The receiver has the same index among that node's ranks as the
/// sender on its own node. The receiver dispatches the rows inside its node, sums the weighted
/// outputs and sends one row back; the token's rank sums over nodes, which may round differently
/// from one level. Sources: Shazeer et al. 2017, section 3.1; for two levels DeepSeek-V3, 3.2.2.
struct RowRoute {
  /// One all-to-all to the units' side and one back.
  struct Level {
    DispatchPlan plan;   ///< which rows go to which rank, in which order
    Communicator* comm;  ///< must outlive the autograd graph
    Payload payload;     ///< dtype in which rows, or a node's sums, are sent
  };
  Level first;                  ///< the only level or, of two, the one between nodes
  std::optional<Level> inside;  ///< of two levels the one inside this node; else unset
  /// int64 [B], with `inside`. Over the first level B pairs (token, unit of this node) arrive, each
  /// with a weight. Pair order_B[i] is row i of the dispatch inside the node, sorted by unit.
  torch::Tensor order_B;
};

/// The routes of a MoE layer while the exchange of row counts for their last levels is in flight.
/// The last level, `inside` or else `first`, gets its plan when the counts are there.
class PendingRoutes {
 public:
  /// Waits for the counts and returns the plan of each route's last level; called once.
  using LastPlans = std::function<std::vector<DispatchPlan>()>;
  PendingRoutes(std::vector<RowRoute> routes, LastPlans last_plans)
      : routes_(std::move(routes)), last_plans_(std::move(last_plans)) {}

  /// Returns a route's first level. Waits for the counts if it is the only one. Throws CommError.
  const RowRoute::Level& first(size_t route);
  /// Waits for the counts and returns the complete routes; called once. Throws CommError.
  std::vector<RowRoute> wait() &&;

 private:
  void finish();

  std::vector<RowRoute> routes_;
  LastPlans last_plans_;  ///< empty once called
};

/// What is sent of a layer's tokens.
struct SentTokens {
  PackedType type;  ///< of tokens and combine weights; Payload may have rows of another type sent
  int64_t num_parts = 1;  ///< number of runs into which each rank's units are cut
};

/// Starts a route for each chunk of tokens, given its rows sorted by unit (apply_capacity). With
/// one chunk and one level, `tokens.num_parts` may be above 1: each rank's units are cut into that
/// many runs, and route p has the chunk's rows for run p of every rank. Two levels are used if
/// `options.hierarchical` is set and the expert ranks are on several nodes.
///
/// Collective over the expert ranks, even with zero rows: one exchange of counts for all routes.
/// Two levels have an exchange of counts on each level, and between them one of each chunk's unit
/// ids. The last exchange is in flight when this returns. On a GPU the host waits at most once for
/// each exchange of counts. A group of one rank or, with one level, a group that knows all counts
/// (TokenAssignments::rows_per_unit_E) exchanges nothing and copies nothing from a GPU to the host.
/// TORCH_CHECK if `placement` has other units or ranks. `grid` must outlive the autograd graph.
PendingRoutes start_routes(const std::vector<TokenAssignments>& chunks,
                           const UnitPlacement& placement, const RankGrid& grid,
                           const ExchangeOptions& options, const SentTokens& tokens);

}  // namespace shoal
