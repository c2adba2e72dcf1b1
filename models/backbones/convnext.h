#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "models/backbone.h"
#include "models/blocks/feed_forward.h"
#include "models/blocks/mlp.h"
#include "models/kernels/layer_norm.h"
#include "models/vision/patch_embed.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/products.h"

// b images on this rank  H height  W width  C channels
namespace shoal {

/// ConvNeXt without its classifier: a stem, stages of blocks, a downsampling layer before each
/// stage but the first, mean pooling, norm. Experts or Nexus layers (experts and key-value memory
/// units behind one soft router; paper: OneSparse) may replace MLPs. Source: Liu et al. 2022.
/// Defaults are ConvNeXt-T's.
///
/// Block numbers run through all stages: `blocks.3` is the first block of ConvNeXt-T's second
/// stage. Activations are [b, H, W, C], so that MLPs and experts read contiguous rows. Stem,
/// downsampling layers and MLPs are Glorot-uniform with biases from N(0, 1e-6); the paper has a
/// truncated normal of deviation 0.02 and zero biases.
class ConvNext : public Backbone, public CountsProducts {
 public:
  struct Options {
    int64_t stem_patch = 4;
    std::vector<int64_t> depths{3, 3, 9, 3};
    std::vector<int64_t> widths{96, 192, 384, 768};
    int64_t expansion = 4;
    Gelu gelu = Gelu::kErf;
    double layer_scale = 1e-6;
    double drop_path = 0.0;
    FeedForwardOptions feed_forward;

    static constexpr auto fields() {
      return std::tuple{
          field("stem_patch", &Options::stem_patch, "side and stride of the stem's convolution",
                in_range(1, kMostWidth), unit("pixels")),
          field("depths", &Options::depths, "number of blocks of each stage",
                in_range(0, kMostBlocks), at_least_one()),
          field("widths", &Options::widths, "channels C of each stage", in_range(1, kMostWidth),
                at_least_one()),
          field("expansion", &Options::expansion, "hidden width of a dense MLP over C",
                in_range(1, kMostWidth)),
          field("gelu", &Options::gelu, "exact, or the tanh approximation"),
          field("layer_scale", &Options::layer_scale, "first value of each block's gamma",
                at_least(0), keeps_evaluation()),
          field("drop_path", &Options::drop_path,
                "rate of stochastic depth of the last block; rises evenly from 0",
                in_range(0, below(1)), keeps_evaluation()),
          inlined(&Options::feed_forward)};
    }
    void validate(Problems& problems) const;
    int64_t depth() const;  ///< number of blocks in all stages
  };

  static constexpr Sketch kSketch{
      .task = "classify",
      .lines =
          "  stem_patch: 2\n"
          "  depths: [2, 2, 4]              # blocks of each stage\n"
          "  widths: [32, 64, 128]          # channels of each stage\n"};  ///< for `shoal new`

  /// Throws ConfigError unless both image sides are multiples of stem_patch · 2^(stages - 1).
  ConvNext(const Options& options, const Context& context);
  ModelOutput forward(const ModelInput& input, const StepContext& step) override;
  int64_t feature_width() const override { return widths_.back(); }
  /// Lists the products of one sample, by which multiply-adds are counted. Ignores `rows`.
  void list_products(double rows, ProductList& list) const override;  ///< for FLOP counts

 private:
  void add_blocks(const Options& options, const ModelContext& build);

  int64_t stem_patch_;
  int64_t pixels_;
  std::vector<int64_t> depths_, widths_;
  Features features_;
  bool recomputes_;
  PatchEmbed stem_{nullptr};
  LayerNorm stem_norm_{nullptr};
  torch::nn::ModuleList downsamples_;
  torch::nn::ModuleList blocks_;
  LayerNorm norm_{nullptr};
};

}  // namespace shoal
