#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "moe/exchange/unit_placement.h"
#include "moe/kernels/permute_rows.h"
#include "moe/kernels/unit_rows.h"
#include "moe/routing/capacity.h"
#include "parallel/comm/collectives.h"
#include "parallel/comm/communicator.h"
#include "runtime/device/device_copy.h"

// T tokens  D width  A rows this rank sends  R rows it received  u units on this rank
namespace shoal {

/// How rows reach the ranks of their units, and what brings them back.
struct DispatchPlan {
  RowIndex index;          ///< tokens of the rows in the order sent
  torch::Tensor weight_A;  ///< combine weights in the order sent, differentiable; may be undefined
  /// Rows by rank. In a group of one rank, with the padding that may follow on a GPU.
  RowCounts send_rows, recv_rows;
  UnitRows rows_u;             ///< rows of each unit on this rank
  torch::Tensor to_units_R;    ///< permutation from arrival to unit order; undefined: identity
  torch::Tensor to_arrival_R;  ///< its inverse
};

/// A plan for each chunk of a layer's tokens, or for each part of the units of all ranks.
///
/// Collective over `expert`, also with zero rows: one exchange of counts for all chunks, which is
/// the layer's only copy to the host, and which the host waits for when it first asks for a plan. A
/// group of one rank exchanges nothing and, on a GPU, copies nothing to the host; neither does one
/// whose chunks know all counts (TokenAssignments::rows_per_unit_E). The order in which a token's
/// rows are summed later does not depend on the placement, within a plan.
class DispatchPlans {
 public:
  /// Starts the exchange of counts. A chunk has `num_parts` plans: plan p moves the rows of
  /// part_of(units of a rank, p, num_parts). TORCH_CHECK if `placement` is of other units or ranks.
  DispatchPlans(const std::vector<TokenAssignments>& chunks, UnitPlacement placement,
                Communicator& expert, int64_t num_parts = 1);
  /// Of each chunk, part by part. Throws CommError.
  const std::vector<DispatchPlan>& get();

 private:
  /// Some units' rows of a chunk.
  struct Piece {
    TokenAssignments assignments;
    std::vector<int64_t> is_taken_U;  ///< 1 or 0; empty: all units
    torch::Tensor taken_U;            ///< the same where the rows are
    torch::Tensor rows_U() const;
    /// The first `num_rows` rows, which are those of the units taken.
    TokenAssignments taken(int64_t num_rows) const;
  };
  /// All counts by (piece, destination rank, unit), then by (source rank, piece, unit).
  std::vector<int64_t> known_counts() const;
  void start_exchange();
  void start_copy();
  void plan_from(const std::vector<int64_t>& counts);
  void plan_own();

  std::vector<Piece> pieces_;
  UnitPlacement placement_;
  Communicator& expert_;
  torch::Tensor sent_CV_;       ///< C: pieces, V: units in the order of their ranks
  torch::Tensor received_ECu_;  ///< E ranks
  Pending exchange_;
  std::optional<HostCopy> copy_;
  std::vector<DispatchPlan> plans_;
};

/// DispatchPlans at once.
std::vector<DispatchPlan> plan_rows(const std::vector<TokenAssignments>& chunks,
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
StartedRows start_dispatch(const torch::Tensor& x_TD, const DispatchPlan& plan,
                           Communicator& expert, Payload payload = Payload::kSame);
/// [R, D], sorted by unit, then by source rank, then as sent.
torch::Tensor finish_dispatch(StartedRows started, const DispatchPlan& plan);

/// Sends each row's combine weight after it, so that units weigh what they say, and experts
/// keep no results for the weights' gradients. Differentiable in plan.weight_A. Collective like
/// start_dispatch.
StartedExchange start_weights(const DispatchPlan& plan, Communicator& expert);
/// [R], in the order of finish_dispatch.
torch::Tensor finish_weights(StartedExchange started, const DispatchPlan& plan);

/// Brings the units' weighted results back. Differentiable in rows_RD. Collective like
/// start_dispatch.
StartedRows start_combine(const torch::Tensor& rows_RD, const DispatchPlan& plan,
                          Communicator& expert, Payload payload = Payload::kSame);
/// Sums each token's results: [T, D]. Tokens without a row get zero.
torch::Tensor finish_combine(StartedRows started, const DispatchPlan& plan);

/// The sum of the counts before each.
torch::Tensor exclusive_sum(const torch::Tensor& counts);

/// The indices of runs, one run after the other: rows_V[v] of them from first_V[v] on, `total` in
/// all, which is the sum of rows_V. int64.
torch::Tensor indices_of_runs(const torch::Tensor& first_V, const torch::Tensor& rows_V,
                              int64_t total);

// All at once, for layers of one chunk.
struct Dispatched {
  torch::Tensor rows_RD, weight_R;
  DispatchPlan plan;
};
Dispatched dispatch(const torch::Tensor& x_TD, const TokenAssignments& assignments,
                    const UnitPlacement& placement, Communicator& expert);
/// Weighs the rows first.
torch::Tensor combine(const torch::Tensor& rows_RD, const Dispatched& sent, Communicator& expert);

}  // namespace shoal
