#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <tuple>

#include "models/backbone.h"
#include "models/blocks/mlp.h"
#include "models/blocks/patch_embed.h"
#include "models/kernels/layer_norm.h"
#include "runtime/base/size_limits.h"

// b images on this rank  S tokens  C width
namespace shoal {

/// MLP-Mixer without its classifier: stem, dense blocks, norm, mean over tokens.
/// Source: Tolstikhin et al. 2021. Defaults are Mixer-B/16's.
class Mixer : public Backbone {
 public:
  struct Options {
    int64_t patch = 16;
    int64_t width = 768;
    int64_t depth = 12;
    int64_t token_hidden = 384;
    int64_t channel_hidden = 3072;
    Gelu gelu = Gelu::kErf;

    static constexpr auto fields() {
      return std::tuple{
          field("patch", &Options::patch, "side of a patch", in_range(1, kMostWidth),
                unit("pixels")),
          field("width", &Options::width, "hidden size C", in_range(1, kMostWidth)),
          field("depth", &Options::depth, "number of blocks", in_range(0, kMostBlocks)),
          field("token_hidden", &Options::token_hidden, "MLP_S dim D_S", in_range(1, kMostWidth)),
          field("channel_hidden", &Options::channel_hidden, "MLP_C dim D_C",
                in_range(1, kMostWidth)),
          field("gelu", &Options::gelu, "exact (timm) or tanh approximation (flax)")};
    }
  };

  Mixer(const Options& options, const Context& context);
  ModelOutput forward(const ModelInput& input, const StepContext& step) override;
  int64_t feature_width() const override { return width_; }

 private:
  int64_t width_;
  Features features_;
  bool recomputes_;
  PatchEmbed stem_{nullptr};
  torch::nn::ModuleList blocks_;
  LayerNorm norm_{nullptr};
};

}  // namespace shoal
