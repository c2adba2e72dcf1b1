#include "models/backbones/decoder.h"

#include <ATen/ops/embedding.h>
#include <fmt/format.h>

#include <utility>

#include "models/blocks/recompute.h"
#include "runtime/base/error.h"
#include "runtime/base/integers.h"

// b sequences on this rank  S tokens  C width
namespace shoal {
namespace {

/// The maximum sequence length.
int64_t context_of(const std::optional<int64_t>& context, const DataShape& data,
                   std::string_view who) {
  require_tokens(data, "model.backbone", who);
  const int64_t tokens = context.value_or(data.sequence);
  if (tokens >= data.sequence) return tokens;
  throw ConfigError(fmt::format(
      "model.context: {} is below the {} tokens of a sample; use {} or more, or shorter samples",
      tokens, data.sequence, data.sequence));
}

}  // namespace

Decoder::Decoder(const Shape& shape, const Context& context)
    : compute_dtype_(context.build.compute_dtype),
      shape_(shape),
      context_(context_of(shape.context, context.data, shape.name)),
      tokens_(context.data.sequence),
      features_(context.features),
      recomputes_(context.build.recomputes) {
  const int64_t rows = round_up(context.data.vocabulary, shape.pad_vocabulary);
  tokens_VC_ = add_parameter("tokens", {rows, shape.width}, context.build.tensor_options,
                             Init::normal(shape.init_std));
}

ModelContext Decoder::block_context(ModelContext build, bool is_causal) {
  build.is_causal = is_causal;
  build.has_token_ids = true;
  return build;
}

void Decoder::set_blocks(torch::nn::ModuleList blocks, const torch::TensorOptions& options) {
  blocks_ = register_module("blocks", std::move(blocks));
  norm_ = register_module("norm", LayerNorm(shape_.width, options, shape_.norm));
}

torch::Tensor Decoder::embed(const torch::Tensor& token_bS, const torch::Tensor& /*position*/,
                             const StepContext& /*step*/) const {
  return at::embedding(tokens_VC_, token_bS).to(compute_dtype_);
}

Rotation Decoder::rotation(const torch::Tensor& position) const {
  if (!shape_.rope_base) return {};
  return rotation_at(position, shape_.head_width, *shape_.rope_base, compute_dtype_);
}

ModelOutput Decoder::forward(const ModelInput& input, const StepContext& step) {
  TORCH_CHECK(blocks_, shape_.name, ": the constructor did not call set_blocks");
  const torch::Tensor& token_bS = input.token_bS;
  TORCH_CHECK(token_bS.dim() == 2 && token_bS.size(1) <= context_, shape_.name, ": tokens are ",
              token_bS.sizes(), ", expected [b, S] with S of at most ", context_);
  const torch::Tensor position_S = torch::arange(token_bS.size(1), token_bS.options());
  DecoderPass pass{step, rotation(position_S), position_S.expand_as(token_bS)};
  pass.step.token_bS = token_bS;
  pass.step.length_b = input.length_b;
  if (shape_.has_gates) pass.is_token_bS = token_mask(pass.step, token_bS.size(1));
  ModelOutput output;
  torch::Tensor x_bSC = embed(token_bS, position_S, pass.step);
  for (const auto& module : *blocks_) {
    auto* block = module->as<DecoderBlock>();
    x_bSC =
        output.take(run_block(recomputes_, *block, x_bSC, [block, pass](const torch::Tensor& x) {
          return block->forward(x, pass);
        }));
  }
  output.set_tokens(norm_->forward(x_bSC), features_, input.length_b);
  return output;
}

KeyValueCache Decoder::make_cache(int64_t b, int64_t capacity) const {
  TORCH_CHECK(capacity <= context_, shape_.name, ": a cache of ", capacity,
              " tokens, the model has a context of ", context_);
  const auto tensor = tokens_VC_.options().dtype(compute_dtype_).requires_grad(false);
  KeyValueCache cache;
  for (const auto& module : *blocks_) {
    cache.layers.push_back(module->as<DecoderBlock>()->make_cache(b, capacity, tensor));
  }
  cache.length_b.assign(static_cast<size_t>(b), 0);
  return cache;
}

torch::Tensor Decoder::decode(const NewTokens& tokens, KeyValueCache& cache,
                              const StepContext& step) {
  const torch::NoGradGuard no_grad;
  const DecodeStep decode(cache, tokens);
  const torch::Tensor& position_bS = decode.position_bS();
  DecoderPass pass{step, rotation(position_bS.unsqueeze(1)), position_bS};
  pass.step.training = false;
  pass.step.token_bS = tokens.token_bS;
  pass.step.position_bS = position_bS;
  if (!tokens.count_b.empty()) pass.step.length_b = torch::tensor(tokens.count_b);
  if (shape_.has_gates) pass.is_token_bS = token_mask(pass.step, tokens.token_bS.size(1));
  torch::Tensor x_bSC = embed(tokens.token_bS, position_bS, pass.step);
  auto layer = cache.layers.begin();
  for (const auto& module : *blocks_) {
    const DecoderPass::Decoding decoding{decode, *layer++};
    pass.decoding = &decoding;
    x_bSC = module->as<DecoderBlock>()->forward(x_bSC, pass).y;
  }
  decode.advance(cache);
  return norm_->forward(x_bSC);
}

void Decoder::list_products(double /*rows*/, ProductList& list) const {
  const auto tokens = static_cast<double>(tokens_);
  for (const torch::Tensor& own : parameters(/*recurse=*/false)) list.apply(own, 0);
  list.visit(*blocks_, tokens);
  list.visit(*norm_, tokens);
}

}  // namespace shoal
