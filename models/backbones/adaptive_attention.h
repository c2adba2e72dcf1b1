#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "models/attention_experts/adaptive_block.h"
#include "models/backbone.h"
#include "models/kernels/layer_norm.h"
#include "models/vision/patch_embed.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/products.h"

// b images on this rank  N tokens  D width
namespace shoal {

/// Backbone of the denoiser in "Adaptive Sparse Attention MoE Architecture": patch embedding,
/// positions, and blocks whose attention is a mixture of attention experts. In each expert a query
/// attends only to the k keys of its highest logits; a router weights the experts for each token,
/// and a linear layer `merge` follows the experts. Defaults are the published model's: 599,689
/// parameters with the task `denoise` on 3 x 32 x 32 images.
///
/// Own parameters: positions [N, D] from N(0, 0.02). All others are initialised as in torch.nn.
class AdaptiveAttention : public Backbone, public CountsProducts {
 public:
  struct Options {
    int64_t patch = 4;
    int64_t width = 128;
    int64_t depth = 2;
    int64_t heads = 4;
    std::optional<int64_t> hidden;
    std::optional<AttentionExpertsOptions> attention = AttentionExpertsOptions{};
    bool final_norm = false;

    static constexpr auto fields() {
      return std::tuple{
          field("patch", &Options::patch, "side of a patch", in_range(1, kMostWidth),
                unit("pixels")),
          field("width", &Options::width, "hidden size D", in_range(1, kMostWidth)),
          field("depth", &Options::depth, "number of blocks", in_range(0, kMostBlocks)),
          field("heads", &Options::heads, "heads of each expert, a divisor of width",
                in_range(1, kMostWidth)),
          field("hidden", &Options::hidden, "hidden width of a block's MLP, auto: twice the width",
                in_range(1, kMostWidth), unset_word("auto")),
          field("attention", &Options::attention,
                "the attention experts; null: standard attention, without merge"),
          field("final_norm", &Options::final_norm, "layer norm after the last block")};
    }
    void validate(Problems& problems) const;
    int64_t hidden_width() const { return hidden.value_or(2 * width); }
  };

  /// What `shoal new` writes. kMust: the model always has experts; `shoal new` without experts
  /// fails with the hint `why`. {top_k} becomes an entry per expert, such as `{k: 8}, {k: 16}`.
  static constexpr Sketch kSketch{.experts = Sketch::Experts::kMust,
                                  .why = "vit is a dense model",
                                  .task = "denoise",
                                  .lines =
                                      "  patch: 4                       # side of a patch, pixels\n"
                                      "  width: 64\n"
                                      "  depth: 2\n"
                                      "  heads: 4\n"
                                      "  attention:\n"
                                      "    experts: [{top_k}]   # each attends to its k best keys\n"
                                      "    losses: auto   # the usual balance losses "
                                      "of the router\n"};

  AdaptiveAttention(const Options& options, const Context& context);
  ModelOutput forward(const ModelInput& input, const StepContext& step) override;
  int64_t feature_width() const override { return options_.width; }
  int64_t patch() const override { return options_.patch; }  ///< in pixels
  /// Lists the products of one sample, by which multiply-adds are counted. Ignores `rows`.
  void list_products(double rows, ProductList& list) const override;

 private:
  Options options_;
  Features features_;
  bool recomputes_;
  PatchEmbed stem_{nullptr};
  torch::Tensor positions_ND_;
  torch::nn::ModuleList blocks_;
  LayerNorm norm_{nullptr};  ///< null without final_norm
};

}  // namespace shoal
