#include "models/backbones/hspmn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "models/hspmn/gate_log.h"
#include "runtime/base/error.h"
#include "runtime/options/automatic_width.h"

// b sequences on this rank  S tokens  C width
namespace shoal {
namespace {

HspmnBlockImpl::Sizes hspmn_block_sizes(const Hspmn::Options& options, const std::string& prefix,
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

}  // namespace

ContextualStream Hspmn::Options::stream_of(int64_t block) const {
  const bool is_dense = std::ranges::find(dense_blocks, block) != dense_blocks.end();
  return is_dense ? ContextualStream::kDense : contextual;
}

void Hspmn::Options::validate(Problems& problems) const {
  if (width % heads != 0) {
    problems.add("heads", fmt::format("{} heads do not divide a width of {}", heads, width));
  } else if (width / heads % 2 != 0) {
    problems.add("heads", fmt::format("rotary embedding turns pairs of numbers, but heads are {} "
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
  if (causal && contextual == ContextualStream::kSparse && gate.select == GateSelection::kTopK) {
    problems.add("gate.select",
                 "topk compares a token with later ones, which a causal model must not see; use "
                 "threshold or topk_predictor, or model.causal=false for classification");
  }
  check_automatic_width("hidden", hidden, hidden_width(), width, problems);
  feed_forward.check(depth, problems);
}

Hspmn::Hspmn(const Options& options, const Context& context)
    : DecoderBackbone(
          {"hspmn", options.width, options.context, options.pad_vocabulary, options.init_std},
          context),
      options_(options) {
  if (options.contextual == ContextualStream::kSparse) options.gate.check_context(context_);
  const BuildContext build = decoder_build(context.build, options.causal);
  torch::nn::ModuleList blocks;
  for (int64_t i = 0; i < options.depth; ++i) {
    HspmnBlockImpl::Sizes sizes = hspmn_block_sizes(options, build.prefix, i);
    sizes.context = context_;
    blocks->push_back(
        HspmnBlock(sizes, options.stream_of(i), options.gate, options.feed_forward, build));
  }
  add_blocks(blocks, {NormKind::kRms, kDecoderEps, /*bias=*/false}, build);
}

Rotation Hspmn::rotation(const torch::Tensor& position) const {
  return rotation_at(position, options_.width / options_.heads, options_.rope_base, compute_dtype_);
}

Hspmn::BlockPass Hspmn::block_pass(const StepContext& step, const torch::Tensor& position_S) const {
  const torch::Tensor& token_bS = step.token_bS;
  return [step, turn = rotation(position_S), position_bS = position_S.expand_as(token_bS),
          is_token_bS = token_mask(step, token_bS.size(1))](torch::nn::Module& block,
                                                            const torch::Tensor& x_bSC) {
    return block.as<HspmnBlockImpl>()->forward(x_bSC, {step, turn, position_bS, is_token_bS});
  };
}

Hspmn::DecodePass Hspmn::decode_pass(const StepContext& step, const DecodeStep& decode) const {
  HspmnBlockImpl::Pass pass{step, rotation(decode.position_bS().unsqueeze(1)), step.position_bS};
  pass.decode = &decode;
  pass.is_token_bS = token_mask(step, step.token_bS.size(1));
  return [pass](torch::nn::Module& block, const torch::Tensor& x_bSC,
                KeyValueCache::Layer& cache) mutable {
    pass.cache = &cache;
    return block.as<HspmnBlockImpl>()->forward(x_bSC, pass).y;
  };
}

KeyValueCache::Layer Hspmn::make_layer(const torch::nn::Module& block, int64_t b, int64_t capacity,
                                       const torch::TensorOptions& options) const {
  return block.as<HspmnBlockImpl>()->make_cache(b, capacity, options);
}

std::vector<TokenGate> Hspmn::gates() const {
  std::vector<TokenGate> gates;
  for (const auto& block : *blocks_) {
    const TokenGate& gate = block->as<HspmnBlockImpl>()->gate();
    if (!gate.is_empty()) gates.push_back(gate);
  }
  return gates;
}

LayerLogs Hspmn::layer_logs() const {
  const std::vector<TokenGate> own = gates();
  if (own.empty()) return {};
  return {std::make_shared<GateLog>(own)};
}

std::vector<std::string> Hspmn::notes_on_accumulation() const {
  const auto is_learned = [](const TokenGate& gate) { return gate->is_learned(); };
  if (std::ranges::none_of(gates(), is_learned)) return {};
  return {
      "model.gate.rate_weight: the loss of the gates' rate is of each micro-step, so its value "
      "depends on train.accumulate"};
}

double Hspmn::open_tokens() const {
  const GateOptions& gate = options_.gate;
  const auto tokens = static_cast<double>(tokens_);
  const auto anchors = static_cast<double>(gate.anchors_in(tokens_));
  double open = anchors + gate.rate * (tokens - anchors);
  if (const std::optional<int64_t> most = gate.most_in(context_, gate.rate)) {
    open = std::min(open, anchors + static_cast<double>(*most));
  }
  const bool explores = gate.select != GateSelection::kRandom;
  return open + (explores ? gate.explore_fraction * (tokens - open) : 0);
}

double Hspmn::rows_of(std::string_view parameter) const {
  if (parameter == "tokens") return 0;
  const bool is_of_open = parameter.find(".attention.query.") != std::string_view::npos ||
                          parameter.find(".attention.proj.") != std::string_view::npos;
  const auto is_dense = [&] {  // `blocks.3.attention.proj.weight`
    return options_.stream_of(number_behind("blocks.", parameter)) == ContextualStream::kDense;
  };
  if (is_of_open && !is_dense()) return open_tokens();
  const NexusCounts nexus(options_.feed_forward, options_.depth);
  return nexus.rows_of(parameter, static_cast<double>(tokens_));
}

std::vector<ActivationProducts> Hspmn::between_activations() const {
  const auto tokens = static_cast<double>(tokens_), width = static_cast<double>(options_.width);
  const double pairs_of_token = options_.causal ? tokens : 2 * tokens;
  const NexusCounts nexus(options_.feed_forward, options_.depth);
  std::vector<ActivationProducts> products;
  for (int64_t block = 0; block < options_.depth; ++block) {
    if (auto mixing = nexus.mixing(block, tokens, width)) products.push_back(std::move(*mixing));
    const ContextualStream stream = options_.stream_of(block);
    if (stream == ContextualStream::kNone) continue;
    const bool is_dense = stream == ContextualStream::kDense;
    products.push_back(
        {fmt::format("blocks.{}.attention.{}.", block, is_dense ? "qkv" : "key_value"),
         (is_dense ? tokens : open_tokens()) * pairs_of_token * width});
  }
  return products;
}

namespace {
const Registration<Backbone, Hspmn> registered_hspmn{
    "hspmn", "decoder whose tokens attend only where a learned gate is open"};
}

}  // namespace shoal
