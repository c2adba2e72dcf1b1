#pragma once

#include <torch/types.h>

#include "models/blocks/dropout.h"
#include "models/blocks/feed_forward.h"
#include "models/decoder/causal_attention.h"
#include "models/kernels/layer_norm.h"
#include "runtime/module/module.h"

// b sequences on this rank  S tokens  C width
namespace shoal {

/// What the blocks of a decoder get beside activations.
struct DecoderPass {
  /// While decoding the tokens of x follow those of the layer's cache.
  struct Decoding {
    const DecodeStep& step;
    KeyValueCache::Layer& cache;
  };
  StepContext step;
  Rotation rotation = {};
  torch::Tensor position_bS = {};      ///< int64
  torch::Tensor is_token_bS = {};      ///< bool, false: padding; undefined: no padding
  const Decoding* decoding = nullptr;  ///< not owned; null unless decoding
};

/// Interface of a Decoder's blocks.
class DecoderBlock : public ModuleBase {
 public:
  /// Returns y, auxiliary loss and MoE statistics. While decoding adds the new tokens' keys and
  /// values to the cache. Collective. x must be contiguous, b may be 0.
  virtual BlockOutput forward(const torch::Tensor& x_bSC, const DecoderPass& pass) = 0;
  /// Returns an empty cache for `b` sequences of up to `capacity` tokens.
  virtual KeyValueCache::Layer make_cache(int64_t b, int64_t capacity,
                                          const torch::TensorOptions& options) const = 0;
};

/// The pre-norm block of GPT-2: y1 = x + CausalAttention(norm(x)), y = y1 + FeedForward(norm(y1))
/// (an MLP or experts), with dropout on both branches. Source: Radford et al. 2019 (GPT-2).
class Gpt2BlockImpl : public DecoderBlock {
 public:
  struct Sizes {
    CausalAttentionImpl::Sizes attention;
    FeedForward::Place place;  ///< widths and position of FeedForward
    NormOptions norm;
    double dropout = 0.0;  ///< rate on both branches
  };
  Gpt2BlockImpl(const Sizes& sizes, const FeedForwardOptions& options, const BuildContext& build);
  BlockOutput forward(const torch::Tensor& x_bSC, const DecoderPass& pass) override;
  KeyValueCache::Layer make_cache(int64_t b, int64_t capacity,
                                  const torch::TensorOptions& options) const override {
    return attention_->make_cache(b, capacity, options);
  }

 private:
  LayerNorm attention_norm_{nullptr};
  CausalAttention attention_{nullptr};
  LayerNorm mlp_norm_{nullptr};
  FeedForward feed_forward_;
  Dropout drop_attention_, drop_mlp_;
};
TORCH_MODULE(Gpt2Block);

}  // namespace shoal
