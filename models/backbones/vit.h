#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include "models/backbone.h"
#include "models/blocks/feed_forward.h"
#include "models/blocks/mlp.h"
#include "models/kernels/layer_norm.h"
#include "models/vision/patch_embed.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/products.h"

// b images on this rank  S tokens  C width
namespace shoal {

/// How the last block's tokens become an image's features: the class token, or the mean.
enum class Pooling { kCls, kMean };

template <>
inline constexpr std::array kEnumWords<Pooling>{"cls", "mean"};

/// How patch positions are encoded: learned parameters, or fixed sines and cosines.
enum class TokenPositions { kLearned, kSinCos };

template <>
inline constexpr std::array kEnumWords<TokenPositions>{"learned", "sin_cos"};

/// Fixed 2-D position encoding of a grid of patches, [rows * columns, width] in row-major order.
/// The encoding of the patch in row r and column c is, in four quarters of the width,
///     sin(r w_d), cos(r w_d), sin(c w_d), cos(c w_d)  with  w_d = 10000^(-d / (width / 4)).
/// TORCH_CHECK that the width is a multiple of 4.
/// Source: vits.py of MoCo v3's code, whose grid_w holds the row numbers.
torch::Tensor sin_cos_positions(int64_t rows, int64_t columns, int64_t width,
                                const torch::TensorOptions& options);

/// Vision Transformer without classifier: stem, positions, blocks, norm, pooling. MoE layers or
/// Nexus layers (experts and key-value memory units behind one soft router; OneSparse) may replace
/// MLPs. Defaults: ViT-B/16. Sources: Dosovitskiy et al. 2021, Riquelme et al. 2021 (V-MoE).
///
/// Own parameters, from N(0, 0.02): cls [C], without weight decay, if `pool: cls`; positions [S, C]
/// if `positions: learned`. Fixed positions are those of MoCo v3, zero for the class token.
class Vit : public Backbone, public CountsProducts {
 public:
  /// keeps_evaluation() marks options that act in training only or only set initial values.
  struct Options {
    int64_t patch = 16;
    int64_t width = 768;
    int64_t depth = 12;
    int64_t heads = 12;
    std::optional<int64_t> hidden;
    Pooling pool = Pooling::kCls;
    TokenPositions positions = TokenPositions::kLearned;
    Gelu gelu = Gelu::kErf;
    double drop_path = 0.0;
    std::optional<double> layer_scale;
    FeedForwardOptions feed_forward;

    static constexpr auto fields() {
      return std::tuple{
          field("patch", &Options::patch, "side of a patch", in_range(1, kMostWidth),
                unit("pixels")),
          field("width", &Options::width, "hidden size C", in_range(1, kMostWidth)),
          field("depth", &Options::depth, "number of blocks", in_range(0, kMostBlocks)),
          field("heads", &Options::heads, "attention heads, a divisor of width",
                in_range(1, kMostWidth)),
          field("hidden", &Options::hidden, "hidden width of a dense MLP; auto: 4 times the width",
                in_range(1, kMostWidth), unset_word("auto")),
          field("pool", &Options::pool, "features: the class token, or the mean over patches"),
          field("positions", &Options::positions,
                "learned, or the fixed sin-cos embedding of MoCo v3"),
          field("gelu", &Options::gelu, "exact, or the tanh approximation"),
          field("drop_path", &Options::drop_path,
                "stochastic depth rate of the last block; increases linearly from 0",
                in_range(0, below(1)), keeps_evaluation()),
          field("layer_scale", &Options::layer_scale,
                "initial value of LayerScale, a learned scale per channel; none = no scales",
                unset_word("none"), at_least(0), keeps_evaluation()),
          inlined(&Options::feed_forward)};
    }
    void validate(Problems& problems) const;
    int64_t hidden_width() const { return hidden.value_or(4 * width); }
    /// Replaces `hidden: auto` by a number, so that equal recipes compare equal.
    void resolve() { hidden = hidden_width(); }
  };

  static constexpr Sketch kSketch{
      .task = "classify",
      .lines =
          "  patch: {patch}                       # side of a patch, pixels\n"
          "  width: 128\n"
          "  depth: 6\n"
          "  heads: 4\n"
          "  hidden: 512                    # width of dense MLPs, 4 times `width`\n"
          "  pool: mean                     # or cls: a class token\n"};  ///< for `shoal new`

  Vit(const Options& options, const Context& context);
  /// Returns features [b, C] or, for Features::kTokens, [b, S, C] (no logits). Collective.
  ModelOutput forward(const ModelInput& input, const StepContext& step) override;
  int64_t feature_width() const override { return width_; }
  /// Default of the recipe's sparsity.layers: experts, and the layers of PA-DST (paper: "Efficient
  /// Dynamic Structured Sparse Training with Learned Shuffles"), appendix C.5.
  std::vector<std::string> sparse_layers() const override {
    return {"stem", "attention.proj", "mlp", "experts"};
  }
  /// Side in pixels of each token's patch, for the task `denoise`; 0 with cls, which has no patch.
  int64_t patch() const override { return cls_C_.defined() ? 0 : patch_; }
  /// Lists the products of one sample, by which multiply-adds are counted. Ignores `rows`.
  void list_products(double rows, ProductList& list) const override;

 private:
  int64_t width_, patch_;
  Features features_;
  bool recomputes_;
  PatchEmbed stem_{nullptr};
  torch::Tensor cls_C_;         ///< undefined with `pool: mean`
  torch::Tensor positions_SC_;  ///< a parameter, or fixed with sin_cos
  torch::nn::ModuleList blocks_;
  LayerNorm norm_{nullptr};
};

}  // namespace shoal
