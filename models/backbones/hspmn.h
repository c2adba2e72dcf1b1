#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "models/blocks/feed_forward.h"
#include "models/causal_backbone.h"
#include "models/hspmn/hspmn_block.h"
#include "models/kernels/layer_norm.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/products.h"

// b sequences on this rank  S tokens  C width
namespace shoal {

/// Decoder of the paper "HSPMN v2.1: Adaptive Computation via Context-Aware Target-Sparsity
/// Regularized Gating and Sparse-Query Attention", which saves attention: every token passes a
/// causal convolution and an MLP (or experts), but only tokens selected by a learned gate attend.
/// Token embedding, blocks, RMS norm; rotary positions. Defaults are the published code's: width
/// 2048, 16 query heads, 4 heads of keys and values. The paper's text has 8 of each.
///
/// Initialisation: weights and embeddings N(0, s), s = init_std; last layers of attention and MLP
/// N(0, s / sqrt(2 depth)); norms 1. Convolution, gate and routers have their own initialisation.
///
/// Own parameters: tokens [V, C], V = the vocabulary rounded up to a multiple of pad_vocabulary.
class Hspmn : public CausalBackbone, public CountsProducts {
 public:
  struct Options {
    int64_t width = 2048;
    int64_t depth = 16;
    int64_t heads = 16;
    int64_t kv_heads = 4;
    std::optional<int64_t> hidden, context;
    int64_t pad_vocabulary = 1;
    double rope_base = 10000.0;
    ContextualStream contextual = ContextualStream::kSparse;
    std::vector<int64_t> dense_blocks;
    GateOptions gate;
    bool causal = true;
    double init_std = 0.02;
    FeedForwardOptions feed_forward;

    static constexpr auto fields() {
      return std::tuple{
          field("width", &Options::width, "hidden size C", in_range(1, kMostWidth)),
          field("depth", &Options::depth, "number of blocks", in_range(0, kMostBlocks)),
          field("heads", &Options::heads, "attention heads, a divisor of width",
                in_range(1, kMostWidth)),
          field("kv_heads", &Options::kv_heads,
                "heads of keys and values, a divisor of heads (grouped-query attention)",
                in_range(1, kMostWidth)),
          field("hidden", &Options::hidden, "hidden width of a dense MLP; auto: 4 times the width",
                in_range(1, kMostWidth), unset_word("auto")),
          field("context", &Options::context,
                "tokens of a sequence at most; auto: those of a sample of data.source",
                in_range(1, kMostWidth), unset_word("auto"), unit("tokens")),
          field("pad_vocabulary", &Options::pad_vocabulary,
                "round the rows of the embedding up to a multiple of this",
                in_range(1, kMostWidth)),
          field("rope_base", &Options::rope_base, "base of the angles of RoPE", above(0)),
          field("contextual", &Options::contextual,
                "which tokens attend: those that a gate opens (sparse), all (dense), none"),
          field("dense_blocks", &Options::dense_blocks,
                "blocks, counted from 0, in which every token attends, whatever contextual is"),
          field("gate", &Options::gate, "which tokens attend"),
          field("causal", &Options::causal,
                "whether a token attends to earlier ones only; false: to all, for classification"),
          field("init_std", &Options::init_std, "standard deviation of the initial weights",
                above(0), keeps_evaluation()),
          inlined(&Options::feed_forward)};
    }
    void validate(Problems& problems) const;
    ContextualStream stream_of(int64_t block) const;  ///< which tokens attend in a block
    int64_t hidden_width() const { return hidden.value_or(4 * width); }
  };

  /// A small model for `shoal new`.
  static constexpr Sketch kSketch{
      .lines =
          "  width: 128\n"
          "  depth: 4\n"
          "  heads: 4\n"
          "  kv_heads: 1\n"
          "  hidden: 256\n"
          "  init_std: 0.06\n"
          "  gate: {rate: 0.25, anneal_steps: 300}   # share of tokens that attend\n"};

  /// Throws ConfigError if the data source gives no tokens, or more in a sample than `context`, and
  /// if more tokens are anchors (which always attend) than the gate's capacity allows.
  Hspmn(const Options& options, const Context& context);
  ModelOutput forward(const ModelInput& input, const StepContext& step) override;
  int64_t feature_width() const override { return options_.width; }
  bool is_causal() const override { return options_.causal; }
  int64_t context_length() const override { return context_; }
  torch::Tensor token_embedding() const override { return tokens_VC_; }
  KeyValueCache make_cache(int64_t b, int64_t capacity) const override;  ///< for generation
  torch::Tensor decode(const NewTokens& tokens, KeyValueCache& cache,
                       const StepContext& step) override;
  /// Returns the log of the token gates, such as the share of tokens that attend.
  LayerLogs layer_logs() const override;
  std::vector<std::string> notes_on_accumulation() const override;
  /// Lists the products of one sample, by which multiply-adds are counted. Ignores `rows`.
  void list_products(double rows, ProductList& list) const override;  ///< for FLOP counts

 private:
  std::vector<TokenGate> gates() const;
  torch::Tensor embed(const torch::Tensor& token_bS) const;
  /// `position`: [S] or [b, 1, S].
  Rotation rotation(const torch::Tensor& position) const;

  Options options_;
  int64_t context_;
  int64_t tokens_;  ///< tokens per sample
  Features features_;
  bool recomputes_;
  torch::Dtype compute_dtype_;
  torch::Tensor tokens_VC_;
  torch::nn::ModuleList blocks_;
  LayerNorm norm_{nullptr};
};

}  // namespace shoal
