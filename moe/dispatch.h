#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "moe/capacity.h"
#include "moe/permute_rows.h"
#include "moe/unit_placement.h"
#include "parallel/communicator.h"

// T tokens  D width  A rows this rank sends  R rows it received  u units on this rank
namespace shoal {

/// Rows at the ranks of their units, and what brings them back.
struct Dispatched {
  torch::Tensor rows_RD;        ///< sorted by unit, then by source rank, then as sent
  std::vector<int64_t> rows_u;  ///< rows of each unit on this rank
  // For `combine`.
  RowIndex index;          ///< tokens of the rows in the order sent
  torch::Tensor weight_A;  ///< combine weights in the order sent, differentiable
  RowCounts send_rows, recv_rows;
  torch::Tensor to_units_R;    ///< permutation from arrival to unit order; undefined: identity
  torch::Tensor to_arrival_R;  ///< its inverse
};

/// Sends each row to the rank that holds its unit. Differentiable in x_TD.
///
/// Collective over `expert`, forward and backward, also with zero rows: one exchange of counts,
/// which is the layer's only copy to the host, and one of rows. A group of one rank exchanges
/// nothing. The order in which a token's rows are summed later does not depend on the placement.
/// TORCH_CHECK if `placement` is of other units or ranks.
/// Source: Shazeer et al. 2017, section 3.1.
Dispatched dispatch(const torch::Tensor& x_TD, const Assignments& assignments,
                    const UnitPlacement& placement, Communicator& expert);

/// Brings the units' results back and sums each token's, weighted: [T, D]. Tokens without a row get
/// zero. Differentiable in rows_RD and in the weights. Collective like `dispatch`, rows only.
torch::Tensor combine(const torch::Tensor& rows_RD, const Dispatched& sent, Communicator& expert);

/// Where the rows that arrived by (source rank, unit) stand when sorted by (unit, source rank):
/// entry i of the result is the arrival position of row i. counts[rank * u + unit].
std::vector<int64_t> unit_order(const std::vector<int64_t>& counts, int64_t num_ranks);

}  // namespace shoal
