#include "models/decoder_backbone.h"

#include <ATen/ops/embedding.h>
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "models/blocks/recompute.h"
#include "runtime/base/error.h"
#include "runtime/base/integers.h"

namespace shoal {
namespace {

/// model.context, or the tokens of a sample.
int64_t decoder_context(const std::optional<int64_t>& context, const DataShape& data,
                        std::string_view who) {
  require_tokens(data, "model.backbone", who);
  const int64_t tokens = context.value_or(data.sequence);
  if (tokens >= data.sequence) return tokens;
  throw ConfigError(fmt::format(
      "model.context: {} is below the {} tokens of a sample; use {} or more, or shorter samples",
      tokens, data.sequence, data.sequence));
}

}  // namespace

DecoderBackbone::DecoderBackbone(const Sizes& sizes, const Context& context)
    : name_(sizes.name),
      context_(decoder_context(sizes.context, context.data, sizes.name)),
      tokens_(context.data.sequence),
      features_(context.features),
      recomputes_(context.build.recomputes),
      compute_dtype_(context.build.compute_dtype) {
  const int64_t rows = round_up(context.data.vocabulary, sizes.pad_vocabulary);
  tokens_VC_ = add_parameter("tokens", {rows, sizes.width}, context.build.tensor_options,
                             Init::normal(sizes.init_std));
}

void DecoderBackbone::add_blocks(const torch::nn::ModuleList& blocks, const NormOptions& norm,
                                 const BuildContext& build) {
  blocks_ = register_module("blocks", blocks);
  norm_ = register_module("norm", LayerNorm(feature_width(), build.tensor_options, norm));
}

torch::Tensor DecoderBackbone::embed(const torch::Tensor& token_bS,
                                     const torch::Tensor& /*position*/,
                                     const StepContext& /*step*/) const {
  return at::embedding(tokens_VC_, token_bS).to(compute_dtype_);
}

ModelOutput DecoderBackbone::forward(const ModelInput& input, const StepContext& step) {
  const torch::Tensor& token_bS = input.token_bS;
  TORCH_CHECK(token_bS.dim() == 2 && token_bS.size(1) <= context_, name_, ": tokens are ",
              token_bS.sizes(), ", expected [b, S] with S of at most ", context_);
  StepContext own = step;
  own.token_bS = token_bS;
  own.length_b = input.length_b;
  const torch::Tensor position_S = torch::arange(token_bS.size(1), token_bS.options());
  const BlockPass pass = block_pass(own, position_S);
  ModelOutput output;
  torch::Tensor x_bSC = embed(token_bS, position_S, own);
  for (const auto& block : *blocks_) {
    const auto run = [pass, &block = *block](const torch::Tensor& x) { return pass(block, x); };
    x_bSC = output.take(run_block(recomputes_, *block, x_bSC, run));
  }
  output.set_tokens(norm_->forward(x_bSC), features_, input.length_b);
  return output;
}

KeyValueCache DecoderBackbone::make_cache(int64_t b, int64_t capacity) const {
  TORCH_CHECK(capacity <= context_, name_, ": a cache of ", capacity,
              " tokens, the model has a context of ", context_);
  const auto tensor = tokens_VC_.options().dtype(compute_dtype_).requires_grad(false);
  KeyValueCache cache;
  for (const auto& block : *blocks_) {
    cache.layers.push_back(make_layer(*block, b, capacity, tensor));
  }
  cache.length_b.assign(static_cast<size_t>(b), 0);
  return cache;
}

torch::Tensor DecoderBackbone::decode(const NewTokens& tokens, KeyValueCache& cache,
                                      const StepContext& step) {
  const torch::NoGradGuard no_grad;
  StepContext own = step;
  own.training = false;
  own.token_bS = tokens.token_bS;
  const DecodeStep decode(cache, tokens);
  own.position_bS = decode.position_bS();
  if (!tokens.count_b.empty()) own.length_b = torch::tensor(tokens.count_b);
  const DecodePass pass = decode_pass(own, decode);
  torch::Tensor x_bSC = embed(tokens.token_bS, decode.position_bS(), own);
  auto layer = cache.layers.begin();
  for (const auto& block : *blocks_) x_bSC = pass(*block, x_bSC, *layer++);
  decode.advance(cache);
  return norm_->forward(x_bSC);
}

BuildContext decoder_build(BuildContext build, bool is_causal) {
  build.is_causal = is_causal;
  build.reads_tokens = true;
  return build;
}

}  // namespace shoal
