#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "models/backbone.h"
#include "models/blocks/mlp.h"
#include "models/kernels/layer_norm.h"
#include "models/vision/patch_embed.h"
#include "models/vision/sparse_mlp_block.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/products.h"

// b images on this rank  S tokens  C width
namespace shoal {

/// Where the sparse blocks stand among the dense ones (Sparse-MLP table 5).
enum class Positions { kLast, kFirst };

template <>
inline constexpr std::array kEnumWords<Positions>{"last", "first"};

/// Options of models of Mixer blocks, which mix tokens by one MLP and channels by another.
struct MixerOptions {
  int64_t patch = 16;
  int64_t width = 768;
  std::optional<int64_t> token_hidden, channel_hidden;
  Gelu gelu = Gelu::kErf;

  /// D_S, of the MLPs over tokens; in the paper's Mixers half the model's width, at least 1.
  int64_t token_hidden_width() const { return token_hidden.value_or(width > 1 ? width / 2 : 1); }
  /// D_C, of the MLPs over channels.
  int64_t channel_hidden_width() const { return channel_hidden.value_or(4 * width); }
  void validate(Problems& problems) const;
  /// Replaces `auto` widths by numbers, so that equal recipes compare equal.
  void resolve() {
    token_hidden = token_hidden_width();
    channel_hidden = channel_hidden_width();
  }
};

/// Sparse-MLP, an all-MLP image backbone without its classifier: patch embedding, dense (Mixer)
/// blocks, sparse blocks (MoE layers over tokens and over channels), norm, mean over tokens.
/// Source: Lou et al. 2021 ("Cross-token Modeling with Conditional Computation"), sections 2.3 and
/// 3, table 8. Defaults are Sparse-B's; MoE layers have the defaults of MoeOptions.
class SparseMlp : public Backbone, public CountsProducts {
 public:
  struct Options : MixerOptions {
    int64_t dense_blocks = 10;
    int64_t sparse_blocks = 2;
    Positions positions = Positions::kLast;
    SparseOptions sparse;

    static constexpr auto fields() {
      return std::tuple{field("patch", &Options::patch, "side of a patch", in_range(1, kMostWidth),
                              unit("pixels")),
                        field("width", &Options::width, "hidden size C", in_range(1, kMostWidth)),
                        field("dense_blocks", &Options::dense_blocks, "number of dense blocks L1",
                              in_range(0, kMostBlocks)),
                        field("token_hidden", &Options::token_hidden,
                              "MLP_S dim D_S of dense blocks; auto: half the width",
                              in_range(1, kMostWidth), unset_word("auto")),
                        field("channel_hidden", &Options::channel_hidden,
                              "MLP_C dim D_C of dense blocks; auto: 4 times the width",
                              in_range(1, kMostWidth), unset_word("auto")),
                        field("sparse_blocks", &Options::sparse_blocks,
                              "number of sparse blocks L2", in_range(0, kMostBlocks)),
                        field("positions", &Options::positions, "where the sparse blocks are"),
                        field("sparse", &Options::sparse, "what a sparse block is made of"),
                        field("gelu", &Options::gelu, "exact (timm) or tanh approximation (flax)")};
    }
    void validate(Problems& problems) const;
  };

  /// What `shoal new` writes into a starter recipe, with {patch} and {stage} filled in. kMust: the
  /// model always has experts; a user who asks for none gets an error with the hint `why`.
  static constexpr Sketch kSketch{
      .experts = Sketch::Experts::kMust,
      .why = "mixer is the dense model",
      .task = "classify",
      .lines =
          "  patch: {patch}                       # side of a patch, pixels\n"
          "  width: 64\n"
          "  dense_blocks: 2\n"
          "  token_hidden: 64\n"
          "  channel_hidden: 256\n"
          "  sparse_blocks: 1\n"
          "  sparse:\n"
          "    token_moe:                     # mixes tokens\n"
          "      {stage}\n"
          "    channel_moe:                   # mixes channels\n"
          "      {stage}\n"};

  /// `name`: the backbone's name in error messages.
  SparseMlp(const Options& options, const Context& context, std::string_view name = "sparse_mlp");
  ModelOutput forward(const ModelInput& input, const StepContext& step) override;
  int64_t feature_width() const override { return width_; }
  /// Layers that the recipe's `sparsity` makes sparse by default.
  std::vector<std::string> sparse_layers() const override {
    return {"token_mlp", "channel_mlp", "experts"};
  }
  /// Lists the products of one sample, by which multiply-adds are counted. Ignores `rows`.
  void list_products(double /*rows*/, ProductList& list) const override {
    list.visit_parts(*this, static_cast<double>(tokens_));
  }

 private:
  int64_t width_, tokens_;
  Features features_;
  bool recomputes_;
  PatchEmbed stem_{nullptr};
  torch::nn::ModuleList blocks_;
  LayerNorm norm_{nullptr};
};

/// MLP-Mixer, an image backbone without its classifier: a SparseMlp whose blocks are all dense,
/// without MoE layers. Source: Tolstikhin et al. 2021. Defaults are Mixer-B/16's.
class Mixer : public SparseMlp {
 public:
  struct Options : MixerOptions {
    int64_t depth = 12;

    static constexpr auto fields() {
      return std::tuple{
          field("patch", &Options::patch, "side of a patch", in_range(1, kMostWidth),
                unit("pixels")),
          field("width", &Options::width, "hidden size C", in_range(1, kMostWidth)),
          field("depth", &Options::depth, "number of blocks", in_range(0, kMostBlocks)),
          field("token_hidden", &Options::token_hidden, "MLP_S dim D_S; auto: half the width",
                in_range(1, kMostWidth), unset_word("auto")),
          field("channel_hidden", &Options::channel_hidden,
                "MLP_C dim D_C; auto: 4 times the width", in_range(1, kMostWidth),
                unset_word("auto")),
          field("gelu", &Options::gelu, "exact (timm) or tanh approximation (flax)")};
    }
  };

  /// What `shoal new` writes into a starter recipe, with {patch} filled in. kNone: the model has no
  /// experts; a user who asks for some gets an error with the hint `why`.
  static constexpr Sketch kSketch{
      .experts = Sketch::Experts::kNone,
      .why = "sparse_mlp is a Mixer with experts",
      .task = "classify",
      .lines =
          "  patch: {patch}                       # side of a patch, pixels\n"
          "  width: 128\n"
          "  depth: 6\n"
          "  token_hidden: 64               # of MLPs over tokens, half the width\n"
          "  channel_hidden: 512            # of MLPs over channels, 4 times the width\n"};

  Mixer(const Options& options, const Context& context)
      : SparseMlp({options, /*dense_blocks=*/options.depth, /*sparse_blocks=*/0, Positions::kLast,
                   /*sparse=*/{}},
                  context, "mixer") {}
};

}  // namespace shoal
