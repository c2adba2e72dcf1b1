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
    return std::tuple{field("chunks", &ExchangeOptions::chunks,
                            "parts of the rows: experts compute one while the next is in flight",
                            in_range(1, kMostChunks)),
                      field("hierarchical", &ExchangeOptions::hierarchical,
                            "send a token once to each other node, which sums its outputs"),
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
/// a start and its finish overlaps with the exchange. A flat exchange is one all-to-all each way,
/// forward and backward: the combine weights and their gradients are sent with the rows.
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

}  // namespace shoal
