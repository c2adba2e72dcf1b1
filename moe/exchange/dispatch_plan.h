#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "moe/exchange/packed_rows.h"
#include "moe/exchange/unit_placement.h"
#include "moe/kernels/permute_rows.h"
#include "moe/kernels/unit_rows.h"
#include "moe/routing/capacity.h"
#include "parallel/comm/communicator.h"

/// Plans for one all-to-all of a MoE layer and back: which row goes where, in which order, computed
/// from counts without communication. A row is one token on its way to one unit (expert) with one
/// combine weight or, between nodes, to one node with the weights of all its units there.
// A rows this rank sends  R rows it receives  U units  V units in the order of their ranks
// u units on this rank  E ranks  C pieces
namespace shoal {

/// How rows reach the ranks of their units, and how the units' outputs return.
struct DispatchPlan {
  RowIndex index;  ///< token of each row, in the order sent
  /// int64: the i-th combine weight sent is the chunk's weight order_A[i]; undefined: weight i.
  /// Weights are sent in the order of the rows.
  torch::Tensor order_A;
  /// Number of rows by rank. In a group of one rank on a GPU, trailing padding rows count too: they
  /// stand for dropped choices, whose number is not copied to the host.
  RowCounts send_rows, recv_rows;
  RowCounts send_weights, recv_weights;  ///< number of combine weights by rank
  UnitRows rows_u;                       ///< rows of each unit on this rank
  /// Permutation from order of arrival to unit order; undefined: identity.
  torch::Tensor to_units_R;
  torch::Tensor to_arrival_R;      ///< inverse of to_units_R
  PackedLayout to_send, received;  ///< buffers of the dispatch; not in a group of one rank
};

/// The rows that one all-to-all moves: all rows of a chunk of tokens, or its rows for some units.
struct Piece {
  TokenAssignments assignments;     ///< all rows of the chunk of tokens
  std::vector<int64_t> is_taken_U;  ///< 1 for each unit of the piece, else 0; empty: all units
  torch::Tensor taken_U;            ///< is_taken_U on the device of the rows
  RowIndex index = {};              ///< set by index_rows
  torch::Tensor rows_U() const;     ///< rows of each unit; 0 for units of other pieces
};

/// Cuts each chunk of tokens into `num_parts` pieces by unit: every rank's units are cut into
/// `num_parts` runs of nearly equal size, and piece p has the rows for run p of every rank. Pieces
/// are listed chunk by chunk. TORCH_CHECK unless chunks and placement have the same units.
std::vector<Piece> cut_into_pieces(const std::vector<TokenAssignments>& chunks,
                                   const UnitPlacement& placement, int64_t num_parts);

/// Optional: makes the index of a piece before the counts are known, if it has all rows of its
/// chunk. Without this call make_plans makes the index.
void index_rows(Piece& piece);

/// Numbers of rows that this rank sends and receives.
struct DispatchCounts {
  std::vector<int64_t> sent_CV;       ///< from this rank to each unit
  std::vector<int64_t> received_ECu;  ///< from each rank to each unit of this rank
  torch::Tensor device_ECu;           ///< received_ECu on the device of the rows
};

/// Returns DispatchCounts::sent_CV as a tensor [C, V] on the device of the rows.
torch::Tensor rows_to_send(const std::vector<Piece>& pieces, const UnitPlacement& placement);

/// True if every rank knows all counts without communication (TokenAssignments::rows_per_unit_E).
bool has_known_counts(const std::vector<Piece>& pieces);
/// Returns the counts of `rank`; requires has_known_counts. TORCH_CHECK on wrong counts (on CPUs).
DispatchCounts known_counts(const std::vector<Piece>& pieces, const UnitPlacement& placement,
                            int64_t rank);

/// Makes a plan for each piece, of rows and weights of a type. Outputs are summed in unit order.
std::vector<DispatchPlan> make_plans(const std::vector<Piece>& pieces,
                                     const UnitPlacement& placement, const DispatchCounts& counts,
                                     const PackedType& type);
/// Sets to_send and received of a plan made by hand, as between nodes, from its other members.
void lay_out(DispatchPlan& plan, const PackedType& type);
/// Makes the plan for a group of one rank. Copies nothing from a GPU to the host.
DispatchPlan plan_on_one_rank(const TokenAssignments& assignments);

/// Returns the combine weights in the order in which `plan` sends them. Differentiable.
torch::Tensor weights_to_send(const torch::Tensor& weight_A, const DispatchPlan& plan);

}  // namespace shoal
