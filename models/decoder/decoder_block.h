#pragma once

#include <torch/types.h>

#include "models/blocks/dropout.h"
#include "models/blocks/feed_forward.h"
#include "models/decoder/causal_attention.h"
#include "models/kernels/layer_norm.h"
#include "runtime/module/module.h"

// B sequences  S tokens  C width
namespace shoal {

/// A pre-norm decoder block: y1 = x + CausalAttention(norm(x)), y = y1 + FeedForward(norm(y1)) (an
/// MLP or experts), with dropout on both branches. Source: Radford et al. 2019 (GPT-2).
class DecoderBlockImpl : public ModuleBase {
 public:
  struct Sizes {
    CausalAttentionImpl::Sizes attention;
    FeedForward::Place place;  ///< widths and position of FeedForward
    NormOptions norm;
    double dropout = 0.0;  ///< rate on both branches
  };
  DecoderBlockImpl(const Sizes& sizes, const FeedForwardOptions& options,
                   const BuildContext& build);
  /// Returns y, balance losses and statistics. Collective. x must be contiguous, B may be 0.
  BlockOutput forward(const torch::Tensor& x_BSC, const Rotation& rotation,
                      const StepContext& step) const;
  /// Positions and mask of new tokens, and the keys and values of earlier ones in this block.
  struct Decoding {
    const DecodeStep& step;
    KeyValueCache::Layer& cache;
  };
  /// Runs the block on S new tokens and adds their keys and values to the cache. Collective.
  BlockOutput decode(const torch::Tensor& x_BSC, const Rotation& rotation, const StepContext& step,
                     const Decoding& decoding) const;

 private:
  BlockOutput add_mlp(const torch::Tensor& y1_BSC, const StepContext& step) const;

  LayerNorm attention_norm_{nullptr};
  CausalAttention attention_{nullptr};
  LayerNorm mlp_norm_{nullptr};
  FeedForward feed_forward_;
  Dropout drop_attention_, drop_mlp_;
};
TORCH_MODULE(DecoderBlock);

}  // namespace shoal
