#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "moe/exchange/dispatch_plan.h"
#include "moe/exchange/packed_rows.h"
#include "parallel/comm/collectives.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/options/config.h"

// T tokens of a chunk  D width  R rows at this rank's units  u units on this rank
namespace shoal {

/// In what dtype rows are sent.
enum class Payload {
  kSame,      ///< as they are computed
  kBfloat16,  ///< rounded to bfloat16, also those that stay, so that ranks change nothing
};

template <>
struct EnumNames<Payload> {
  static constexpr std::array names{std::pair{Payload::kSame, "same"},
                                    std::pair{Payload::kBfloat16, "bfloat16"}};
};

/// Most chunks that a layer's rows are cut into: by unit where each rank has a unit for each chunk,
/// else, and in a hierarchical exchange, by whole routing groups of tokens.
inline constexpr int64_t kMostChunks = 4;

/// Whether they are cut by unit: products stay as large as without chunks, and no gradients of
/// weights are added up.
inline bool cuts_by_unit(int64_t chunks, bool has_levels, int64_t fewest_units) {
  return !has_levels && fewest_units >= chunks;
}

/// How rows are exchanged between ranks (recipe section `exchange`).
struct ExchangeOptions {
  int64_t chunks = 1;
  bool hierarchical = false;
  Payload payload = Payload::kSame;

  static constexpr auto fields() {
    return std::tuple{
        field("chunks", &ExchangeOptions::chunks,
              "parts of the rows: experts compute one while the next is in flight",
              in_range(1, kMostChunks), keeps_evaluation()),
        field("hierarchical", &ExchangeOptions::hierarchical,
              "send a token once to each other node, which sums its outputs", keeps_evaluation()),
        field("payload", &ExchangeOptions::payload,
              "dtype in which rows, or a node's sums of them, are sent")};
  }
};

/// Rows at their units.
struct ArrivedRows {
  torch::Tensor rows_RD;   ///< sorted by unit; on a GPU trailing padding rows may follow
  UnitRows rows_u;         ///< rows of each unit on this rank
  torch::Tensor weight_R;  ///< combine weights, which the units apply to their outputs
};

/// Dispatch and combine of one chunk's rows. Each step is called once, in this order; every step is
/// collective over the expert ranks, forward and backward, also without rows, and what runs between
/// a start and its finish overlaps with the exchange, in both directions.
class RowExchange {
 public:
  virtual ~RowExchange() = default;
  /// Differentiable in x_TD and in the combine weights.
  virtual void start_dispatch(const torch::Tensor& x_TD) = 0;
  virtual ArrivedRows finish_dispatch() = 0;
  /// Sends weighted outputs back. Differentiable in rows_RD.
  virtual void start_combine(const torch::Tensor& rows_RD) = 0;
  /// The sum of each token's outputs: [T, D]. Tokens without a row get zero.
  virtual torch::Tensor finish_combine() = 0;
};

/// The plans of a layer's exchanges, one for each of cut_into_pieces. The first get() waits for the
/// counts and throws CommError.
using PendingPlans = std::shared_future<std::vector<DispatchPlan>>;
/// Wraps plans that are already known.
PendingPlans ready_plans(std::vector<DispatchPlan> plans);
/// Starts the exchange of counts. Collective over `expert`, also with zero rows: one exchange for
/// all plans, whose result is the layer's only copy to the host. A group of one rank exchanges
/// nothing and, on a GPU, copies nothing to the host; neither does one where all counts are known
/// (TokenAssignments::rows_per_unit_E). TORCH_CHECK if `placement` is of other units or ranks.
/// `expert` must outlive the plans.
PendingPlans start_plans(const std::vector<TokenAssignments>& chunks,
                         const UnitPlacement& placement, Communicator& expert,
                         int64_t num_parts = 1);

/// Every row goes straight to the rank of its unit: one all-to-all each way, forward and backward.
/// The combine weights are sent with the rows, and their gradients come back with the rows', so
/// that experts weigh their own outputs and nothing is kept for the weights' gradients.
/// Source: Shazeer et al. 2017, section 3.1.
class FlatExchange : public RowExchange {
 public:
  /// The plan with this number.
  struct Planned {
    PendingPlans plans;
    size_t number;
  };
  /// weight_A: combine weights of the chunk.
  FlatExchange(Planned planned, torch::Tensor weight_A, Communicator& expert, Payload payload)
      : planned_(std::move(planned)),
        weight_A_(std::move(weight_A)),
        expert_(expert),
        payload_(payload) {}
  /// Before start_dispatch, where the constructor was not given them.
  void set_weights(torch::Tensor weight_A) { weight_A_ = std::move(weight_A); }

  void start_dispatch(const torch::Tensor& x_TD) override;
  /// Rows are sorted by unit, then by source rank, then as sent.
  ArrivedRows finish_dispatch() override;
  void start_combine(const torch::Tensor& rows_RD) override;
  torch::Tensor finish_combine() override;

 private:
  const DispatchPlan& plan() const { return planned_.plans.get()[planned_.number]; }
  torch::Dtype sent_dtype() const;

  Planned planned_;
  torch::Tensor weight_A_;  ///< in a group of one rank, after start_dispatch: in the order sent
  Communicator& expert_;
  Payload payload_;
  StartedExchange started_;
  torch::Dtype dtype_ = torch::kFloat32;  ///< of the rows to dispatch, then of those to combine
  PackedType type_ = {};                  ///< of the dispatched buffer, from start to finish
};

/// An exchange for each chunk, or for each of `num_parts` parts of the units of the only chunk
/// (cut_into_pieces), which a hierarchical exchange does not offer. Collective: one exchange of
/// counts for all chunks, in a hierarchical exchange one on each level and for each chunk one of
/// the choices; on a GPU at most one wait of the host for each count. The last wait is left to the
/// first start_dispatch, so that what runs before it overlaps. `hierarchical` is the flat exchange
/// where all expert ranks are on one node.
std::vector<std::unique_ptr<RowExchange>> plan_exchange(const std::vector<TokenAssignments>& chunks,
                                                        const UnitPlacement& placement,
                                                        const RankGrid& grid,
                                                        const ExchangeOptions& options,
                                                        int64_t num_parts = 1);

/// The exchange in two levels, for expert ranks on more than one node.
///
/// A token is sent once to each node that holds units it is routed to, with its combine weights: to
/// the rank at its own rank's place on that node. That rank dispatches the rows inside its node,
/// sums the weighted outputs and sends one row back; the token's rank sums over nodes. So each
/// (token, other node) costs one row between nodes in each direction. Padding rows stay at home.
/// Sums over a token's units go node by node, so they may round differently from the flat exchange;
/// a node's partial sum is sent as `payload`. Source: DeepSeek-V3, section 3.2.2.
std::vector<std::unique_ptr<RowExchange>> plan_node_exchange(
    const std::vector<TokenAssignments>& chunks, const UnitPlacement& placement,
    const RankGrid& grid, Payload payload);

}  // namespace shoal
