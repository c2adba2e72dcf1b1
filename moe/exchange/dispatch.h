#pragma once

#include <torch/types.h>

#include "moe/exchange/row_route.h"
#include "parallel/comm/collectives.h"

/// The two all-to-alls of a MoE layer: dispatch sends each token's rows to the ranks of their units
/// (experts), combine returns the units' outputs and sums them by token. A row is one token on its
/// way to one unit. Combine weights travel with the rows and are applied by the units, so that no
/// outputs are stored for the weights' gradients. Rows travel in chunks, each along a RowRoute from
/// start_routes: one level (all-to-all), or a first level between nodes and one inside each node.
///
/// Every function is collective over the route's ranks, forward and backward, even without rows.
// T tokens of the chunk  A its rows  D width  W weights sent  R rows received  u units on this rank
namespace shoal {

/// The rows that have arrived at this rank's units.
struct Dispatched {
  /// Sorted by unit, then by source rank, then as sent. On a GPU trailing padding rows may follow.
  torch::Tensor rows_RD;
  UnitRows rows_u;         ///< rows of each unit on this rank
  torch::Tensor weight_R;  ///< combine weights, by which units multiply their outputs
};

/// Sends the chunk's rows to the ranks of their units. weight_A: the chunk's combine weights, one
/// for each row, sorted by unit (TokenAssignments). Differentiable in x_TD and weight_A.
Dispatched dispatch(const torch::Tensor& x_TD, const torch::Tensor& weight_A,
                    const RowRoute& route);
/// Returns the weighted outputs' sums by token, [T, D]; zeros without rows. Differentiable.
torch::Tensor combine(const torch::Tensor& weighted_RD, const RowRoute& route);

/// A dispatch that was started.
struct DispatchInFlight {
  StartedExchange started;
  torch::Dtype dtype;      ///< dtype of the tokens
  torch::Tensor weight_W;  ///< combine weights; undefined if packed into the buffer (several ranks)
};
/// A combine that was started.
struct CombineInFlight {
  StartedExchange started;
  torch::Dtype dtype = torch::kFloat32;  ///< dtype of the outputs
};

/// dispatch and combine in two halves: computation between start and finish overlaps with the
/// exchange, forward and backward. Call each half once. `first`: the route's first level, which
/// alone is in flight between halves. The halves that take `route` run the level inside the node.
DispatchInFlight start_dispatch(const torch::Tensor& x_TD, const torch::Tensor& weight_A,
                                const RowRoute::Level& first);
Dispatched finish_dispatch(DispatchInFlight flight, const RowRoute& route);
CombineInFlight start_combine(const torch::Tensor& weighted_RD, const RowRoute& route);
torch::Tensor finish_combine(CombineInFlight flight, const RowRoute::Level& first);

}  // namespace shoal
