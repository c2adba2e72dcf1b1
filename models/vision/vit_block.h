#pragma once

#include <torch/types.h>

#include <optional>

#include "models/blocks/attention.h"
#include "models/blocks/dropout.h"
#include "models/blocks/feed_forward.h"
#include "models/kernels/layer_norm.h"
#include "runtime/module/module.h"

// B images  S tokens  C width
namespace shoal {

/// A pre-norm transformer block: y1 = x + Attention(norm(x)), y = y1 + FeedForward(norm(y1)).
/// FeedForward is an MLP, experts or a Nexus layer (experts and key-value memory units behind one
/// soft router; paper: OneSparse). Both branches have stochastic depth and, with `layer_scale`, a
/// learned scale per channel, initialised to that value: parameters attention_scale [C] and
/// mlp_scale [C]. Source: Dosovitskiy et al. 2021, eq. 2 and 3; LayerScale: Touvron et al. 2021b.
class VitBlockImpl : public ModuleBase {
 public:
  struct Sizes {
    int64_t heads = 0;
    FeedForward::Place place;                ///< width and position of FeedForward
    double drop_path = 0.0;                  ///< rate of stochastic depth
    std::optional<double> layer_scale = {};  ///< unset: no scales
  };
  VitBlockImpl(const Sizes& sizes, const FeedForwardOptions& options, const BuildContext& build);
  /// Returns y, balance losses and statistics. Collective. x must be contiguous, B may be 0.
  BlockOutput forward(const torch::Tensor& x_BSC, const StepContext& step) const;

 private:
  LayerNorm attention_norm_{nullptr};
  Attention attention_{nullptr};
  LayerNorm mlp_norm_{nullptr};
  FeedForward feed_forward_;
  DropPath drop_attention_, drop_mlp_;
  torch::Tensor attention_scale_C_, mlp_scale_C_;  ///< undefined without layer_scale
};
TORCH_MODULE(VitBlock);

}  // namespace shoal
