#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "moe/exchange/unit_placement.h"
#include "moe/kernels/permute_rows.h"
#include "moe/kernels/unit_rows.h"
#include "moe/routing/capacity.h"
#include "parallel/comm/communicator.h"

/// Plans are made from counts of rows, without communication; moe/exchange/row_route.h exchanges
/// the counts.
// A rows this rank sends  R rows it receives  U units  V units in the order of their ranks
// u units on this rank  E ranks  C pieces
namespace shoal {

/// How rows reach the ranks of their units, and how the units' outputs return.
struct DispatchPlan {
  RowIndex index;  ///< token of each row, in the order sent
  /// int64: which of the assignments' weights is sent at each place, and with it which row, except
  /// between nodes. Undefined: the first ones, in order.
  torch::Tensor order_A;
  /// Rows by rank. A group of one rank counts trailing padding rows, if any (GPU).
  RowCounts send_rows, recv_rows;
  RowCounts send_weights, recv_weights;  ///< number of combine weights by rank
  UnitRows rows_u;                       ///< rows of each unit on this rank
  torch::Tensor
      to_units_R;  ///< permutation from order of arrival to unit order; undefined: identity
  torch::Tensor to_arrival_R;  ///< its inverse
};

/// The rows that one exchange moves: all of a chunk of the tokens, or those for some of the units.
struct Piece {
  TokenAssignments assignments;     ///< of the whole chunk
  std::vector<int64_t> is_taken_U;  ///< 1 for each unit of the piece, else 0; empty: all units
  torch::Tensor taken_U;            ///< is_taken_U on the device of the rows
  torch::Tensor rows_U() const;     ///< rows of each unit; 0 for units of other pieces
};

/// Cuts each chunk into `num_parts` pieces, chunk by chunk: piece p has the rows of part_of(units
/// of a rank, p, num_parts) of every rank. TORCH_CHECK unless chunks and placement have the same
/// units.
std::vector<Piece> cut_into_pieces(const std::vector<TokenAssignments>& chunks,
                                   const UnitPlacement& placement, int64_t num_parts);

/// Numbers of rows that go from rank to rank.
struct DispatchCounts {
  std::vector<int64_t> sent_CV;       ///< from this rank to each unit
  std::vector<int64_t> received_ECu;  ///< from each rank to each unit of this rank
  torch::Tensor device_ECu;           ///< received_ECu on the device of the rows
};

/// Returns DispatchCounts::sent_CV as a tensor [C, V] on the device of the rows.
torch::Tensor rows_to_send(const std::vector<Piece>& pieces, const UnitPlacement& placement);

/// True if every rank knows all counts (TokenAssignments::rows_per_unit_E).
bool has_known_counts(const std::vector<Piece>& pieces);
/// Returns the counts of `rank` if has_known_counts. TORCH_CHECK, on the CPU, unless they are true
/// of this rank's assignments.
DispatchCounts known_counts(const std::vector<Piece>& pieces, const UnitPlacement& placement,
                            int64_t rank);

/// Makes a plan for each piece. A token's rows are summed in the order of units, whatever the
/// placement.
std::vector<DispatchPlan> make_plans(const std::vector<Piece>& pieces,
                                     const UnitPlacement& placement, const DispatchCounts& counts);
/// Makes the plan of a group of one rank, which needs no counts on the host.
DispatchPlan plan_on_one_rank(const TokenAssignments& assignments);

/// Returns the combine weights of the assignments in the order in which `plan` sends them.
/// Differentiable.
torch::Tensor weights_to_send(const torch::Tensor& weight_A, const DispatchPlan& plan);

/// Returns consecutive int64 indices, run by run: rows_V[v] of them from first_V[v] on, `total` =
/// sum of rows_V.
torch::Tensor indices_of_runs(const torch::Tensor& first_V, const torch::Tensor& rows_V,
                              int64_t total);

}  // namespace shoal
