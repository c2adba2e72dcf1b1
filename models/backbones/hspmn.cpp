#include "models/backbones/hspmn.h"

#include <ATen/ops/embedding.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "models/blocks/recompute.h"
#include "models/decoder_shape.h"
#include "models/hspmn/gate_log.h"
#include "runtime/base/integers.h"
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
    HspmnBlockImpl::Sizes sizes = hspmn_block_sizes(options, build.prefix, i);
    sizes.context = context_;
    blocks_->push_back(
        HspmnBlock(sizes, options.stream_of(i), options.gate, options.feed_forward, build));
  }
  register_module("blocks", blocks_);
  norm_ = register_module(
      "norm", LayerNorm(options.width, tensor, NormOptions{NormKind::kRms, kDecoderEps, false}));
}

torch::Tensor Hspmn::embed(const torch::Tensor& token_bS) const {
  return at::embedding(tokens_VC_, token_bS).to(compute_dtype_);
}

Rotation Hspmn::rotation(const torch::Tensor& position) const {
  return rotation_at(position, options_.width / options_.heads, options_.rope_base, compute_dtype_);
}

ModelOutput Hspmn::forward(const ModelInput& input, const StepContext& step) {
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

KeyValueCache Hspmn::make_cache(int64_t b, int64_t capacity) const {
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

torch::Tensor Hspmn::decode(const NewTokens& tokens, KeyValueCache& cache,
                            const StepContext& step) {
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

void Hspmn::list_products(double /*rows*/, ProductList& list) const {
  const auto tokens = static_cast<double>(tokens_);
  list.apply(tokens_VC_, 0);
  list.visit(*blocks_, tokens);
  list.visit(*norm_, tokens);
}

namespace {
const Registration<Backbone, Hspmn> registered_hspmn{
    "hspmn", "decoder whose tokens attend only where a learned gate is open"};
}

}  // namespace shoal
