#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "moe/capacity.h"
#include "moe/permute_rows.h"
#include "moe/unit_placement.h"
#include "parallel/collectives.h"
#include "parallel/communicator.h"

// T tokens  D width  A rows this rank sends  R rows it received  u units on this rank
namespace shoal {

/// How rows reach the ranks of their units, and what brings them back.
struct RowPlan {
  RowIndex index;          ///< tokens of the rows in the order sent
  torch::Tensor weight_A;  ///< combine weights in the order sent, differentiable
  RowCounts send_rows, recv_rows;
  std::vector<int64_t> rows_u;  ///< rows of each unit on this rank
  torch::Tensor to_units_R;     ///< permutation from arrival to unit order; undefined: identity
  torch::Tensor to_arrival_R;   ///< its inverse
};

/// A plan for each chunk of a layer's tokens.
///
/// Collective over `expert`, also with zero rows: one exchange of counts for all chunks, which is
/// the layer's only copy to the host; a group of one rank exchanges nothing. The order in which a
/// token's rows are summed later does not depend on the placement.
/// TORCH_CHECK if `placement` is of other units or ranks.
std::vector<RowPlan> plan_rows(const std::vector<Assignments>& chunks,
                               const UnitPlacement& placement, Communicator& expert);

/// What rows look like on their way.
enum class Payload {
  kSame,      ///< as they are computed
  kBfloat16,  ///< rounded to bfloat16, also those that stay, so that ranks change nothing
};

/// Rows on their way, and what they are on arrival.
struct StartedRows {
  StartedExchange exchange;
  torch::Dtype dtype;
};

/// Sends each row to the rank that holds its unit. Differentiable in x_TD. Collective over
/// `expert`, forward and backward, also with zero rows. What runs between start and finish overlaps
/// with the exchange, in both directions.
/// Source: Shazeer et al. 2017, section 3.1.
StartedRows start_dispatch(const torch::Tensor& x_TD, const RowPlan& plan, Communicator& expert,
                           Payload payload = Payload::kSame);
/// [R, D], sorted by unit, then by source rank, then as sent.
torch::Tensor finish_dispatch(StartedRows started, const RowPlan& plan);

/// Brings the units' results back. Differentiable in rows_RD. Collective like start_dispatch.
StartedRows start_combine(const torch::Tensor& rows_RD, const RowPlan& plan, Communicator& expert,
                          Payload payload = Payload::kSame);
/// Sums each token's results, weighted: [T, D]. Tokens without a row get zero. Differentiable in
/// the weights too.
torch::Tensor finish_combine(StartedRows started, const RowPlan& plan);

/// Where the rows that arrived by (source rank, unit) stand when sorted by (unit, source rank):
/// entry i of the result is the arrival position of row i. counts[rank * u + unit].
std::vector<int64_t> unit_order(const std::vector<int64_t>& counts, int64_t num_ranks);

// All at once, for layers of one chunk.
struct Dispatched {
  torch::Tensor rows_RD;
  RowPlan plan;
};
Dispatched dispatch(const torch::Tensor& x_TD, const Assignments& assignments,
                    const UnitPlacement& placement, Communicator& expert);
torch::Tensor combine(const torch::Tensor& rows_RD, const RowPlan& plan, Communicator& expert);

}  // namespace shoal
