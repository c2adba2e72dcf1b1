#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "moe/exchange/count_exchange.h"
#include "moe/exchange/dispatch_plan.h"
#include "moe/exchange/packed_rows.h"
#include "moe/exchange/unit_placement.h"
#include "moe/routing/capacity.h"
#include "parallel/comm/collectives.h"
#include "parallel/comm/communicator.h"

// T tokens  D width  A rows this rank sends  R rows it receives
namespace shoal {

/// The plans of a layer's exchanges, whose counts may still be in flight.
///
/// Collective over `expert`, also with zero rows: one exchange of counts for all plans, whose
/// result is the layer's only copy to the host. A group of one rank exchanges nothing and, on a
/// GPU, copies nothing to the host; neither does one where all counts are known
/// (TokenAssignments::rows_per_unit_E).
class PendingPlans {
 public:
  /// Starts the exchange of counts. Plans are those of cut_into_pieces. TORCH_CHECK if `placement`
  /// is of other units or ranks. `expert` must outlive this.
  PendingPlans(const std::vector<TokenAssignments>& chunks, UnitPlacement placement,
               Communicator& expert, int64_t num_parts = 1);
  /// One for each piece. The first call waits for the counts. Throws CommError.
  const std::vector<DispatchPlan>& get();

 private:
  UnitPlacement placement_;
  std::vector<Piece> pieces_;
  std::optional<CountExchange> counts_;
  std::vector<DispatchPlan> plans_;
};

/// In what dtype rows are sent.
enum class Payload {
  kSame,      ///< as they are computed
  kBfloat16,  ///< rounded to bfloat16, also those that stay, so that ranks change nothing
};

/// An exchange of rows in flight.
struct StartedRows {
  StartedExchange exchange;
  torch::Dtype dtype;  ///< of the rows before and after
};
struct StartedDispatch {
  StartedRows rows;
  PackedType sent;         ///< what the buffer of rows and weights holds
  torch::Tensor weight_W;  ///< group of one rank: the weights
};

/// Sends each row to the rank that holds its unit, and with the rows, in the same all-to-all, the
/// combine weights, so that experts weigh their own outputs and nothing is kept for the weights'
/// gradients. weight_A are the assignments' weights. Differentiable in x_TD and weight_A; their
/// gradients come back in one all-to-all too. Collective over `expert`, forward and backward, also
/// with zero rows. What runs between start and finish overlaps with the exchange, in both
/// directions. Source: Shazeer et al. 2017, section 3.1.
StartedDispatch start_dispatch(const torch::Tensor& x_TD, const torch::Tensor& weight_A,
                               const DispatchPlan& plan, Communicator& expert,
                               Payload payload = Payload::kSame);
/// rows_RD [R, D] and their weights, sorted by unit, then by source rank, then as sent.
RowsWithWeights finish_dispatch(StartedDispatch started, const DispatchPlan& plan);

/// Sends the units' weighted outputs back. Differentiable in rows_RD. Collective like
/// start_dispatch.
StartedRows start_combine(const torch::Tensor& rows_RD, const DispatchPlan& plan,
                          Communicator& expert, Payload payload = Payload::kSame);
/// Sums each token's outputs: [T, D]. Tokens without a row get zero.
torch::Tensor finish_combine(StartedRows started, const DispatchPlan& plan);

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
