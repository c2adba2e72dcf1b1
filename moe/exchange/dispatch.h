#pragma once

#include <torch/types.h>

#include "moe/exchange/packed_rows.h"
#include "moe/exchange/row_route.h"
#include "parallel/comm/collectives.h"

/// Combine weights travel with the rows, and the units multiply their outputs by them: nothing is
/// kept for the weights' gradients, and combine only sends back and sums.
///
/// Every function is collective over the route's ranks, forward and backward, also without rows.
// T tokens of the chunk  D width  R rows at this rank's units  u units on this rank
namespace shoal {

/// Rows at their units.
struct Dispatched {
  /// Sorted by unit, then by source rank, then as sent. On a GPU trailing padding rows may follow.
  torch::Tensor rows_RD;
  UnitRows rows_u;         ///< rows of each unit on this rank
  torch::Tensor weight_R;  ///< combine weights, which the units apply to their outputs
};

/// Sends the chunk's rows to the ranks of their units. Differentiable in tokens and weights.
/// weight_A: combine weights of the chunk (TokenAssignments).
Dispatched dispatch(const torch::Tensor& x_TD, const torch::Tensor& weight_A,
                    const RowRoute& route);
/// Sends weighted outputs back: the sum of each token's outputs, [T, D]; zero for tokens without a
/// row. Differentiable.
torch::Tensor combine(const torch::Tensor& weighted_RD, const RowRoute& route);

/// A dispatch between its two halves.
struct DispatchInFlight {
  StartedExchange started;
  torch::Dtype dtype;      ///< of the tokens
  PackedType type;         ///< of the buffer that is sent
  torch::Tensor weight_W;  ///< in a group of one rank, which sends no weights: those of the rows
};
/// A combine between its two halves.
struct CombineInFlight {
  StartedExchange started;
  torch::Dtype dtype = torch::kFloat32;  ///< of the outputs
};

/// dispatch and combine in two halves: what runs between them overlaps with the exchange, in both
/// directions. Each half is called once. `first`: the route's.
DispatchInFlight start_dispatch(const torch::Tensor& x_TD, const torch::Tensor& weight_A,
                                const RowRoute::Level& first);
Dispatched finish_dispatch(DispatchInFlight flight, const RowRoute& route);
CombineInFlight start_combine(const torch::Tensor& weighted_RD, const RowRoute& route);
torch::Tensor finish_combine(CombineInFlight flight, const RowRoute::Level& first);

}  // namespace shoal
