#include <ATen/ops/embedding.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "models/blocks/feed_forward.h"
#include "models/blocks/recompute.h"
#include "models/causal_backbone.h"
#include "models/decoder_shape.h"
#include "models/hspmn/gate_log.h"
#include "models/hspmn/hspmn_block.h"
#include "models/kernels/layer_norm.h"
#include "runtime/base/integers.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/products.h"
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
          "  gate: {rate: 0.25, anneal_steps: 300}   # share of tokens that attend\n"};

  /// Throws ConfigError if the data source gives no tokens, or more in a sample than `context`, and
  /// if more tokens are anchors (which always attend) than the gate's capacity allows.
  Hspmn(const Options& options, const Context& context)
      : options_(options),
        context_(decoder_context(options.context, context.data, "hspmn")),
        tokens_(context.data.sequence),
        features_(context.features),
        recomputes_(context.build.recomputes),
        compute_dtype_(context.build.compute_dtype) {
    if (options.contextual == ContextualStream::kSparse) options.gate.check_context(context_);
    const ModelContext build = decoder_build(context.build, options.causal);
    const torch::TensorOptions& tensor = build.tensor_options;
    const int64_t rows = round_up(context.data.vocabulary, options.pad_vocabulary);
    tokens_VC_ =
        add_parameter("tokens", {rows, options.width}, tensor, Init::normal(options.init_std));
    for (int64_t i = 0; i < options.depth; ++i) {
      HspmnBlockImpl::Sizes sizes = block_sizes(options, build.prefix, i);
      sizes.context = context_;
      blocks_->push_back(
          HspmnBlock(sizes, options.stream_of(i), options.gate, options.feed_forward, build));
    }
    register_module("blocks", blocks_);
    norm_ = register_module(
        "norm", LayerNorm(options.width, tensor, NormOptions{NormKind::kRms, kDecoderEps, false}));
  }

  ModelOutput forward(const ModelInput& input, const StepContext& step) override {
    const torch::Tensor& token_bS = input.token_bS;
    TORCH_CHECK(token_bS.dim() == 2 && token_bS.size(1) <= context_, "hspmn: tokens are ",
                token_bS.sizes(), ", expected [b, S] with S of at most ", context_);
    StepContext own = step;
    own.token_bS = token_bS;
    own.length_b = input.length_b;
    const torch::Tensor position_S = torch::arange(token_bS.size(1), token_bS.options());
    const torch::Tensor position_bS = position_S.expand_as(token_bS);
    const torch::Tensor is_token_bS = token_mask(own, token_bS.size(1));
    const Rotation turn = rotation(position_S);
    ModelOutput output;
    torch::Tensor x_bSC = embed(token_bS);
    for (const auto& module : *blocks_) {
      auto* block = module->as<HspmnBlockImpl>();
      x_bSC = output.take(run_block(recomputes_, *block, x_bSC, [=](const torch::Tensor& x) {
        return block->forward(x, {own, turn, position_bS, is_token_bS});
      }));
    }
    output.set_tokens(norm_->forward(x_bSC), features_, input.length_b);
    return output;
  }
  int64_t feature_width() const override { return options_.width; }
  bool is_causal() const override { return options_.causal; }
  int64_t context_length() const override { return context_; }
  torch::Tensor token_embedding() const override { return tokens_VC_; }
  KeyValueCache make_cache(int64_t b, int64_t capacity) const override {
    TORCH_CHECK(capacity <= context_, "hspmn: a cache of ", capacity,
                " tokens, the model has a context of ", context_);
    const auto tensor = tokens_VC_.options().dtype(compute_dtype_).requires_grad(false);
    KeyValueCache cache;
    for (const auto& module : *blocks_) {
      cache.layers.push_back(module->as<HspmnBlockImpl>()->make_cache(b, capacity, tensor));
    }
    cache.length_b.assign(static_cast<size_t>(b), 0);
    return cache;
  }
  torch::Tensor decode(const NewTokens& tokens, KeyValueCache& cache,
                       const StepContext& step) override {
    const torch::NoGradGuard no_grad;
    const torch::Tensor& token_bS = tokens.token_bS;
    StepContext own = step;
    own.training = false;
    own.token_bS = token_bS;
    const DecodeStep decode(cache, tokens);
    own.position_bS = decode.position_bS();
    if (!tokens.count_b.empty()) own.length_b = torch::tensor(tokens.count_b);
    HspmnBlockImpl::Pass pass{own, rotation(decode.position_bS().unsqueeze(1)), own.position_bS};
    pass.decode = &decode;
    pass.is_token_bS = token_mask(own, token_bS.size(1));
    torch::Tensor x_bSC = embed(token_bS);
    auto layer = cache.layers.begin();
    for (const auto& module : *blocks_) {
      pass.cache = &*layer++;
      x_bSC = module->as<HspmnBlockImpl>()->forward(x_bSC, pass).y;
    }
    decode.advance(cache);
    return norm_->forward(x_bSC);
  }
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
  /// Lists the products of one sample, by which multiply-adds are counted. Ignores `rows`.
  void list_products(double /*rows*/, ProductList& list) const override {
    const auto tokens = static_cast<double>(tokens_);
    list.apply(tokens_VC_, 0);
    list.visit(*blocks_, tokens);
    list.visit(*norm_, tokens);
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
    for (const auto& block : *blocks_) {
      const TokenGate& gate = block->as<HspmnBlockImpl>()->gate();
      if (!gate.is_empty()) gates.push_back(gate);
    }
    return gates;
  }
  torch::Tensor embed(const torch::Tensor& token_bS) const {
    return at::embedding(tokens_VC_, token_bS).to(compute_dtype_);
  }
  /// `position`: [S] or [b, 1, S].
  Rotation rotation(const torch::Tensor& position) const {
    return rotation_at(position, options_.width / options_.heads, options_.rope_base,
                       compute_dtype_);
  }

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

const Registration<Backbone, Hspmn> registered_hspmn{
    "hspmn", "decoder whose tokens attend only where a learned gate is open"};

}  // namespace
}  // namespace shoal
