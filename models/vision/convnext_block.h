#pragma once

#include <torch/types.h>

#include "models/blocks/dropout.h"
#include "models/blocks/feed_forward.h"
#include "models/kernels/layer_norm.h"
#include "models/vision/patch_embed.h"
#include "runtime/module/module.h"

// B images  H height  W width  C channels
namespace shoal {

/// Depthwise 7 x 7 convolution with zero padding, as in ConvNeXt blocks; sizes stay equal.
///
/// Parameters: weight [C, 1, 7, 7] from N(0, 0.02), bias [C] of zeros. ConvNeXt truncates the
/// normal at 2, a hundred deviations away; Shoal does not.
class DepthwiseConvImpl : public ModuleBase {
 public:
  DepthwiseConvImpl(int64_t channels, const torch::TensorOptions& options);
  /// [B, H, W, C] -> [B, H, W, C], contiguous. B may be 0.
  torch::Tensor forward(const torch::Tensor& x_BHWC) const;

  torch::Tensor weight, bias;

 private:
  static constexpr int64_t kSide = 7;  ///< of the kernel
};
TORCH_MODULE(DepthwiseConv);

/// ConvNeXt block with stochastic depth: y = x + gamma * FeedForward(norm(DepthwiseConv(x))).
/// FeedForward is an MLP, experts or a Nexus layer (experts and key-value memory units behind one
/// soft router; paper: OneSparse). gamma, a parameter [C] initialised to `layer_scale`, is
/// LayerScale (Touvron et al. 2021b). Source: Liu et al. 2022 (ConvNeXt), figure 4.
class ConvNextBlockImpl : public ModuleBase {
 public:
  struct Sizes {
    FeedForward::Place place;  ///< width and position of FeedForward
    double layer_scale = 0.0;  ///< first value of gamma
    double drop_path = 0.0;    ///< rate of stochastic depth
  };
  ConvNextBlockImpl(const Sizes& sizes, const FeedForwardOptions& options,
                    const BuildContext& build);
  /// Returns y, balance losses and statistics of experts. Collective. B may be 0.
  BlockOutput forward(const torch::Tensor& x_BHWC, const StepContext& step) const;

 private:
  DepthwiseConv conv_{nullptr};
  LayerNorm norm_{nullptr};
  FeedForward feed_forward_;
  torch::Tensor gamma_C_;
  DropPath drop_path_;
};
TORCH_MODULE(ConvNextBlock);

/// Downsampling layer between two stages: norm, then a 2 x 2 convolution with stride 2.
class ConvNextDownsampleImpl : public ModuleBase {
 public:
  ConvNextDownsampleImpl(int64_t channels, int64_t new_channels,
                         const torch::TensorOptions& options);
  /// [B, H, W, C] -> [B, H / 2, W / 2, new C]. TORCH_CHECK unless H and W are even.
  torch::Tensor forward(const torch::Tensor& x_BHWC) const;

 private:
  LayerNorm norm_{nullptr};
  PatchEmbed conv_{nullptr};
};
TORCH_MODULE(ConvNextDownsample);

}  // namespace shoal
