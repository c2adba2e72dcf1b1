#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "models/blocks/block_output.h"
#include "models/blocks/mlp.h"
#include "moe/moe_layer.h"
#include "moe/nexus/nexus_layer.h"
#include "parallel/comm/build_context.h"
#include "runtime/base/size_limits.h"
#include "runtime/random/step_context.h"
#include "runtime/recipe/config.h"

// B images  S tokens  C width
namespace shoal {

/// Blocks, counted from 0, that have units in their MLP's place: `to`, and of those before it down
/// to `from` every so many.
struct SparseBlocks {
  std::optional<int64_t> from, to, every;

  static constexpr auto fields() {
    return std::tuple{
        field("from", &SparseBlocks::from, "first block of the range; auto: that of the last half",
              in_range(0, kMostBlocks), unset_word("auto")),
        field("to", &SparseBlocks::to, "last block of the range; auto: the model's last",
              in_range(0, kMostBlocks), unset_word("auto")),
        field("every", &SparseBlocks::every,
              "distance of two such blocks, counted back from `to`; auto: 2 with moe, 1 with nexus",
              in_range(1, kMostBlocks), unset_word("auto"))};
  }
};

/// What stands in the MLPs' place of a backbone's blocks, and where; dense MLPs without. Unless
/// told, experts are in every second block of the last half, the last one included, as V-MoE has
/// them (Riquelme et al. 2021), a Nexus layer in all of the last half, as Soft MoE has its layers
/// (Puigcerver et al. 2024).
struct FeedForwardOptions {
  std::optional<MoeOptions> moe;
  std::optional<NexusOptions> nexus;
  std::optional<SparseBlocks> sparse_blocks;

  static constexpr auto fields() {
    return std::tuple{field("moe", &FeedForwardOptions::moe, "experts in place of MLPs"),
                      field("nexus", &FeedForwardOptions::nexus,
                            "experts and memory units behind one soft router in place of MLPs"),
                      field("sparse_blocks", &FeedForwardOptions::sparse_blocks,
                            "which blocks have them, of those of all stages")};
  }
  /// Rules that need the number of blocks.
  void check(int64_t depth, Problems& problems) const;
  /// Whether this block of `depth` has units in its MLP's place.
  bool is_sparse(int64_t block, int64_t depth) const;
};

/// What stands in a block's MLP place: a dense Mlp, a MoeLayer or a NexusLayer. No module itself:
/// it is registered with the block under its own name, `mlp`, `moe` or `nexus`, which checkpoints
/// show.
class FeedForward {
 public:
  struct Place {
    int64_t width = 0, hidden = 0;  ///< C, and the hidden width of a dense MLP
    Gelu gelu = Gelu::kErf;         ///< of a dense MLP
    int64_t block = 0, depth = 0;   ///< which block of how many
    std::string path() const { return "blocks." + std::to_string(block); }
  };
  FeedForward(torch::nn::Module& owner, const FeedForwardOptions& options, const Place& place,
              const BuildContext& build);
  /// Collective. B may be 0.
  BlockOutput forward(const torch::Tensor& x_BSC, const StepContext& step) const;
  /// The dense MLP; empty where units take its place.
  const Mlp& mlp() const { return mlp_; }

 private:
  Mlp mlp_{nullptr};
  std::shared_ptr<MoeLayer> moe_;
  std::shared_ptr<NexusLayer> nexus_;
};

}  // namespace shoal
