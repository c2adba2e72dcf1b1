#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "models/blocks/block_output.h"
#include "models/blocks/mlp.h"
#include "moe/build_context.h"
#include "moe/moe_layer.h"
#include "moe/nexus/nexus_layer.h"
#include "runtime/base/size_limits.h"
#include "runtime/options/config.h"
#include "runtime/random/step_context.h"

// B samples  S tokens  C width
namespace shoal {

/// Which blocks, counted from 0, have experts or a Nexus layer (experts and key-value memory units
/// behind one soft router; paper: OneSparse) in place of an MLP: from block `to` down to block
/// `from` in steps of `every`.
struct SparseBlocks {
  std::optional<int64_t> from, to, every;

  static constexpr auto fields() {
    return std::tuple{
        field("from", &SparseBlocks::from, "first block of the range; auto: half of the depth",
              in_range(0, kMostBlocks), unset_word("auto")),
        field("to", &SparseBlocks::to, "last block of the range; auto: the model's last",
              in_range(0, kMostBlocks), unset_word("auto")),
        field(
            "every", &SparseBlocks::every,
            "distance between such blocks, counted back from `to`; auto: 2 with moe, 1 with nexus",
            in_range(1, kMostBlocks), unset_word("auto"))};
  }
};

/// Experts or a Nexus layer in place of the MLP of some of a backbone's blocks. By default experts
/// replace every second MLP of the second half, including the last, as in V-MoE (Riquelme et al.
/// 2021), and Nexus layers every MLP of that half, as in Soft MoE (Puigcerver et al. 2024).
struct FeedForwardOptions {
  std::optional<MoeOptions> moe;
  std::optional<NexusOptions> nexus;
  std::optional<SparseBlocks> sparse_blocks;

  static constexpr auto fields() {
    return std::tuple{field("moe", &FeedForwardOptions::moe, "experts in place of MLPs"),
                      field("nexus", &FeedForwardOptions::nexus,
                            "experts and memory units behind one soft router in place of MLPs"),
                      field("sparse_blocks", &FeedForwardOptions::sparse_blocks,
                            "which blocks have them, numbered across all stages")};
  }
  /// Validates what depends on `depth`, the number of blocks.
  void check(int64_t depth, Problems& problems) const;
  /// True if block number `block` of `depth` has experts or a Nexus layer in place of its MLP.
  bool is_sparse(int64_t block, int64_t depth) const;
};

enum class MlpKind { kGelu, kSwiglu };  ///< two layers with a GELU, or SwiGLU

template <>
inline constexpr std::array kEnumWords<MlpKind>{"gelu", "swiglu"};

/// A block's feed-forward layer: Mlp, GatedMlp (SwiGLU), MoeLayer or NexusLayer. Not a module: it
/// registers the layer with `owner`, the block, as `mlp`, `moe` or `nexus`, its checkpoint name.
class FeedForward {
 public:
  struct Place {
    int64_t width = 0, hidden = 0;  ///< C, and the hidden width of a dense MLP
    Gelu gelu = Gelu::kErf;         ///< of a dense MLP
    int64_t block = 0, depth = 0;   ///< number of the block, from 0, and of all blocks
    std::string prefix = {};        ///< begins paths; differs between a task's backbones
    MlpKind kind = MlpKind::kGelu;  ///< of a dense MLP
    bool has_bias = true;           ///< of a dense MLP
    /// Initialisation of a dense MLP and of experts; default: each layer's own.
    std::optional<MlpInits> inits = {};
    std::string path() const { return prefix + "blocks." + std::to_string(block); }
  };
  FeedForward(torch::nn::Module& owner, const FeedForwardOptions& options, const Place& place,
              const BuildContext& build);
  /// Returns y, balance losses and statistics of experts. Collective. B may be 0.
  BlockOutput forward(const torch::Tensor& x_BSC, const StepContext& step) const;
  /// True for a dense MLP, which computes each token independently of others.
  bool is_dense() const { return moe_ == nullptr && nexus_ == nullptr; }

 private:
  void add_mlp(torch::nn::Module& owner, const Place& place, const torch::TensorOptions& options);

  Mlp mlp_{nullptr};
  GatedMlp gated_{nullptr};
  std::shared_ptr<MoeLayer> moe_;
  std::shared_ptr<NexusLayer> nexus_;
};

}  // namespace shoal
