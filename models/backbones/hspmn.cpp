#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/backbones/decoder.h"
#include "models/blocks/feed_forward.h"
#include "models/hspmn/gate_log.h"
#include "models/hspmn/hspmn_block.h"
#include "runtime/base/size_limits.h"
#include "runtime/options/automatic_width.h"

// b sequences on this rank  S tokens  C width
namespace shoal {
namespace {

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
class Hspmn : public Decoder {
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
                "key and value heads, a divisor of heads (grouped-query attention)",
                in_range(1, kMostWidth)),
          field("hidden", &Options::hidden, "hidden width of a dense MLP; auto: 4 times the width",
                in_range(1, kMostWidth), unset_word("auto")),
          field("context", &Options::context,
                "maximum number of tokens per sequence; auto: those of a sample of data.source",
                in_range(1, kMostWidth), unset_word("auto"), unit("tokens")),
          field("pad_vocabulary", &Options::pad_vocabulary,
                "round the rows of the embedding up to a multiple of this",
                in_range(1, kMostWidth)),
          field("rope_base", &Options::rope_base, "base of the RoPE angles", above(0)),
          field("contextual", &Options::contextual,
                "which tokens attend: those that a gate opens (sparse), all (dense), none"),
          field("dense_blocks", &Options::dense_blocks,
                "blocks, counted from 0, in which every token attends, regardless of contextual"),
          field("gate", &Options::gate, "which tokens attend"),
          field("causal", &Options::causal,
                "whether tokens attend only to earlier tokens; false: to all, for classification"),
          field("init_std", &Options::init_std, "standard deviation of the initial weights",
                above(0), keeps_evaluation()),
          inlined(&Options::feed_forward)};
    }
    void validate(Problems& problems) const {
      if (width % heads != 0) {
        problems.add("heads", fmt::format("{} heads do not divide a width of {}", heads, width));
      } else if (width / heads % 2 != 0) {
        problems.add("heads",
                     fmt::format("rotary embedding turns pairs of numbers, but heads are {} "
                                 "wide; use an even width of heads",
                                 width / heads));
      }
      if (heads % kv_heads != 0) {
        problems.add("kv_heads", fmt::format("{} do not divide {} heads", kv_heads, heads));
      }
      for (const int64_t block : dense_blocks) {
        if (block < 0 || block >= depth) {
          problems.add("dense_blocks",
                       fmt::format("the model's blocks are 0 to {}, got {}", depth - 1, block));
        }
      }
      const bool has_dense = contextual == ContextualStream::kDense || !dense_blocks.empty();
      if (!causal && has_dense) {
        problems.add("causal",
                     "dense blocks are causal; leave them out, or use contextual: sparse "
                     "with gate.rate: 1");
      }
      if (causal && contextual == ContextualStream::kSparse &&
          gate.select == GateSelection::kTopK) {
        problems.add(
            "gate.select",
            "topk compares a token with later ones, which a causal model must not see; use "
            "threshold or topk_predictor, or model.causal=false for classification");
      }
      check_automatic_width("hidden", hidden, hidden_width(), width, problems);
      feed_forward.check(depth, problems);
    }
    /// Which tokens attend in a block.
    ContextualStream stream_of(int64_t block) const {
      const bool is_dense = std::ranges::find(dense_blocks, block) != dense_blocks.end();
      return is_dense ? ContextualStream::kDense : contextual;
    }
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
          "  gate: {rate: 0.25, anneal_steps: 300}   # fraction of tokens that attend\n"};

  /// Throws ConfigError if the data source gives no tokens, or more in a sample than `context`, and
  /// if more tokens are anchors (which always attend) than the gate's capacity allows.
  Hspmn(const Options& options, const Context& context)
      : Decoder({.name = "hspmn",
                 .width = options.width,
                 .head_width = options.width / options.heads,
                 .context = options.context,
                 .pad_vocabulary = options.pad_vocabulary,
                 .init_std = options.init_std,
                 .rope_base = options.rope_base,
                 .norm = {NormKind::kRms, kDecoderEps, /*bias=*/false},
                 .has_gates = true},
                context),
        is_causal_(options.causal) {
    if (options.contextual == ContextualStream::kSparse) {
      options.gate.check_context(context_length());
    }
    const ModelContext build = block_context(context.build, options.causal);
    torch::nn::ModuleList blocks;
    for (int64_t i = 0; i < options.depth; ++i) {
      HspmnBlockImpl::Sizes sizes = block_sizes(options, build.prefix, i);
      sizes.context = context_length();
      blocks->push_back(
          HspmnBlock(sizes, options.stream_of(i), options.gate, options.feed_forward, build));
    }
    set_blocks(std::move(blocks), build.tensor_options);
  }

  bool is_causal() const override { return is_causal_; }
  /// Returns the log of the token gates, such as the share of tokens that attend.
  LayerLogs layer_logs() const override {
    const std::vector<TokenGate> own = gates();
    if (own.empty()) return {};
    return {std::make_shared<GateLog>(own)};
  }
  std::vector<std::string> notes_on_accumulation() const override {
    const auto is_learned = [](const TokenGate& gate) { return gate->is_learned(); };
    if (std::ranges::none_of(gates(), is_learned)) return {};
    return {
        "model.gate.rate_weight: the loss of the gates' rate is of each micro-step, so its value "
        "depends on train.accumulate"};
  }

 private:
  static HspmnBlockImpl::Sizes block_sizes(const Options& options, const std::string& prefix,
                                           int64_t block) {
    const Init weight = Init::normal(options.init_std);
    const Init residual =
        Init::normal(options.init_std / std::sqrt(2.0 * static_cast<double>(options.depth)));
    HspmnBlockImpl::Sizes sizes;
    sizes.place = {.width = options.width,
                   .hidden = options.hidden_width(),
                   .block = block,
                   .depth = options.depth,
                   .prefix = prefix,
                   .kind = MlpKind::kSwiglu,
                   .has_bias = false,
                   .inits = MlpInits{weight, residual, Init::zeros()}};
    sizes.norm = {NormKind::kRms, kDecoderEps, /*bias=*/false};
    sizes.attention = {options.width, options.heads, options.kv_heads, weight, residual};
    sizes.is_causal = options.causal;
    return sizes;
  }
  std::vector<TokenGate> gates() const {
    std::vector<TokenGate> gates;
    for (const auto& block : *blocks()) {
      const TokenGate& gate = block->as<HspmnBlockImpl>()->gate();
      if (!gate.is_empty()) gates.push_back(gate);
    }
    return gates;
  }

  bool is_causal_;
};

const Registration<Backbone, Hspmn> registered_hspmn{
    "hspmn", "decoder whose tokens attend only where a learned gate is open"};

}  // namespace
}  // namespace shoal
