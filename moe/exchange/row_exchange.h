#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "moe/exchange/dispatch.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/recipe/config.h"

// T tokens of a chunk  D width  R rows at this rank's units  u units on this rank
namespace shoal {

template <>
struct EnumNames<Payload> {
  static constexpr std::array names{std::pair{Payload::kSame, "same"},
                                    std::pair{Payload::kBfloat16, "bfloat16"}};
};

/// Most chunks that a layer's rows are cut into: by unit where each rank has a unit for each chunk,
/// else, and where rows travel on two levels, by whole routing groups of tokens.
inline constexpr int64_t kMostChunks = 4;

/// Whether they are cut by unit: products stay as large as without chunks, and no gradients of
/// weights are added up.
inline bool cuts_by_unit(int64_t chunks, bool has_levels, int64_t fewest_units) {
  return !has_levels && fewest_units >= chunks;
}

/// How rows travel (recipe section `exchange`).
struct ExchangeOptions {
  int64_t chunks = 1;
  bool hierarchical = false;
  Payload payload = Payload::kSame;

  static constexpr auto fields() {
    return std::tuple{field("chunks", &ExchangeOptions::chunks,
                            "parts of the rows, one of which computes while others travel",
                            in_range(1, kMostChunks)),
                      field("hierarchical", &ExchangeOptions::hierarchical,
                            "a token goes once to each other node, which sums its results up"),
                      field("payload", &ExchangeOptions::payload,
                            "what rows, or a node's sums of them, are rounded to on their way")};
  }
};

/// Rows at their units.
struct ArrivedRows {
  torch::Tensor rows_RD;   ///< sorted by unit; on a GPU rows of no unit may follow
  UnitRows rows_u;         ///< rows of each unit on this rank
  torch::Tensor weight_R;  ///< combine weights, for the units to weigh their results with
};

/// The way of one chunk's rows to their units and back. Each step is called once, in this order;
/// every step is collective over the expert ranks, forward and backward, also without rows, and
/// what runs between a start and its finish overlaps with the exchange.
class RowExchange {
 public:
  virtual ~RowExchange() = default;
  /// Sends. Differentiable in x_TD and in the combine weights.
  virtual void start_dispatch(const torch::Tensor& x_TD) = 0;
  virtual ArrivedRows finish_dispatch() = 0;
  /// Sends weighted results back. Differentiable in rows_RD.
  virtual void start_combine(const torch::Tensor& rows_RD) = 0;
  /// Each token's results, summed up: [T, D]. Tokens without a row get zero.
  virtual torch::Tensor finish_combine() = 0;
};

/// An exchange for each chunk, or of the only chunk for each of `num_parts` parts of the units of
/// all ranks (DispatchPlans), which two levels do not know. Collective: one exchange of counts for
/// all chunks on each level, and on a GPU at most one wait of the host for each; the last is left
/// to the first start_dispatch, so that what runs before it overlaps. Two levels also exchange
/// which choices the rows are for, with their weights, chunk by chunk. `hierarchical` is as flat
/// where all expert ranks are on one node.
std::vector<std::unique_ptr<RowExchange>> plan_exchange(const std::vector<TokenAssignments>& chunks,
                                                        const UnitPlacement& placement,
                                                        const RankGrid& grid,
                                                        const ExchangeOptions& options,
                                                        int64_t num_parts = 1);

}  // namespace shoal
