#include "models/backbones/gpt2.h"

#include <ATen/ops/embedding.h>
#include <fmt/format.h>

#include <cmath>

#include "models/blocks/recompute.h"
#include "models/decoder/decoder_block.h"
#include "models/decoder_shape.h"
#include "runtime/base/integers.h"
#include "runtime/options/automatic_values.h"
#include "runtime/options/automatic_width.h"

// b sequences on this rank  S tokens  C width  H head width
namespace shoal {
namespace {

constexpr double kRopeBase = 10000.0;
constexpr int64_t kSwigluMultiple = 64;

DecoderBlockImpl::Sizes block_sizes(const Gpt2::Options& options, const std::string& prefix,
                                    int64_t block) {
  const Init weight = Init::normal(options.init_std);
  const Init residual =
      Init::normal(options.init_std / std::sqrt(2.0 * static_cast<double>(options.depth)));
  DecoderBlockImpl::Sizes sizes;
  sizes.place = {.width = options.width,
                 .hidden = options.hidden_width(),
                 .gelu = options.gelu.value_or(Gelu::kTanh),
                 .block = block,
                 .depth = options.depth,
                 .prefix = prefix,
                 .kind = options.mlp,
                 .has_bias = options.bias,
                 .inits = MlpInits{weight, residual, Init::zeros()}};
  sizes.norm = {options.norm, kDecoderEps, options.bias};
  sizes.dropout = options.dropout;
  double scale = 1.0 / std::sqrt(static_cast<double>(options.width / options.heads));
  if (options.scale_attn_by_inverse_layer_idx) scale /= static_cast<double>(block + 1);
  sizes.attention = {.width = options.width,
                     .heads = options.heads,
                     .kv_heads = options.kv_heads.value_or(options.heads),
                     .scale = scale,
                     .dropout = options.dropout,
                     .has_bias = options.bias,
                     .qkv = weight,
                     .proj = residual,
                     .path = sizes.place.path() + ".attention"};
  return sizes;
}

}  // namespace

int64_t Gpt2::Options::hidden_width() const {
  if (hidden) return *hidden;
  return mlp == MlpKind::kSwiglu ? round_up((8 * width + 2) / 3, kSwigluMultiple) : 4 * width;
}

void Gpt2::Options::resolve() {
  kv_heads = kv_heads.value_or(heads);
  hidden = hidden_width();
  if (mlp == MlpKind::kGelu) gelu = gelu.value_or(Gelu::kTanh);
  if (position == PositionKind::kRope) rope_base = rope_base.value_or(kRopeBase);
}

void Gpt2::Options::validate(Problems& problems) const {
  if (width % heads != 0) {
    problems.add("heads", fmt::format("{} heads do not divide a width of {}", heads, width));
  } else if (position == PositionKind::kRope && width / heads % 2 != 0) {
    problems.add("position",
                 fmt::format("rope turns pairs of numbers, but heads are {} wide; use an even "
                             "width of heads",
                             width / heads));
  }
  if (kv_heads && heads % *kv_heads != 0) {
    problems.add("kv_heads", fmt::format("{} do not divide {} heads", *kv_heads, heads));
  }
  if (rope_base && position != PositionKind::kRope) {
    problems.add("rope_base", "needs position: rope");
  }
  if (gelu && mlp != MlpKind::kGelu) problems.add("gelu", "needs mlp: gelu");
  check_automatic_width("hidden", hidden, hidden_width(), width, problems);
  feed_forward.check(depth, problems);
}

Gpt2::Gpt2(const Options& options, const Context& context)
    : options_(options),
      context_(decoder_context(options.context, context.data, "gpt2")),
      tokens_(context.data.sequence),
      features_(context.features),
      recomputes_(context.build.recomputes),
      compute_dtype_(context.build.compute_dtype),
      drop_embedding_(options.dropout, context.build.prefix + "embedding.dropout") {
  const ModelContext build = decoder_build(context.build);
  const torch::TensorOptions& tensor = build.tensor_options;
  const Init init = Init::normal(options.init_std);
  const int64_t rows = round_up(context.data.vocabulary, options.pad_vocabulary);
  tokens_VC_ = add_parameter("tokens", {rows, options.width}, tensor, init);
  if (options.position == PositionKind::kLearned) {
    positions_TC_ = add_parameter("positions", {context_, options.width}, tensor, init);
  }
  for (int64_t i = 0; i < options.depth; ++i) {
    blocks_->push_back(
        DecoderBlock(block_sizes(options, build.prefix, i), options.feed_forward, build));
  }
  register_module("blocks", blocks_);
  norm_ = register_module("norm", LayerNorm(options.width, tensor,
                                            NormOptions{options.norm, kDecoderEps, options.bias}));
}

torch::Tensor Gpt2::embed(const torch::Tensor& token_bS, const torch::Tensor& position) const {
  torch::Tensor x_bSC = at::embedding(tokens_VC_, token_bS);
  if (positions_TC_.defined()) x_bSC = x_bSC + at::embedding(positions_TC_, position);
  return x_bSC.to(compute_dtype_);
}

Rotation Gpt2::rotation(const torch::Tensor& position) const {
  if (options_.position != PositionKind::kRope) return {};
  return rotation_at(position, options_.width / options_.heads,
                     options_.rope_base.value_or(kRopeBase), compute_dtype_);
}

ModelOutput Gpt2::forward(const ModelInput& input, const StepContext& step) {
  const torch::Tensor& token_bS = input.token_bS;
  TORCH_CHECK(token_bS.dim() == 2 && token_bS.size(1) <= context_, "gpt2: tokens are ",
              token_bS.sizes(), ", expected [b, S] with S of at most ", context_);
  StepContext own = step;
  own.token_bS = token_bS;
  own.length_b = input.length_b;
  const torch::Tensor position_S = torch::arange(token_bS.size(1), token_bS.options());
  const Rotation turn = rotation(position_S);
  ModelOutput output;
  torch::Tensor x_bSC = drop_embedding_.forward(embed(token_bS, position_S), own);
  for (const auto& module : *blocks_) {
    auto* block = module->as<DecoderBlockImpl>();
    x_bSC = output.take(run_block(
        recomputes_, *block, x_bSC,
        [block, own, turn](const torch::Tensor& x) { return block->forward(x, turn, own); }));
  }
  output.set_tokens(norm_->forward(x_bSC), features_, input.length_b);
  return output;
}

KeyValueCache Gpt2::make_cache(int64_t b, int64_t capacity) const {
  TORCH_CHECK(capacity <= context_, "gpt2: a cache of ", capacity,
              " tokens, the model has a context of ", context_);
  const int64_t kv_heads = options_.kv_heads.value_or(options_.heads);
  const std::vector<int64_t> sizes{b, kv_heads, capacity, options_.width / options_.heads};
  const auto tensor = tokens_VC_.options().dtype(compute_dtype_).requires_grad(false);
  KeyValueCache cache;
  for (int64_t i = 0; i < options_.depth; ++i) {
    cache.layers.push_back({torch::zeros(sizes, tensor), torch::zeros(sizes, tensor)});
  }
  cache.length_b.assign(static_cast<size_t>(b), 0);
  return cache;
}

torch::Tensor Gpt2::decode(const NewTokens& tokens, KeyValueCache& cache, const StepContext& step) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& token_bS = tokens.token_bS;
  StepContext own = step;
  own.training = false;
  own.token_bS = token_bS;
  const DecodeStep decode(cache, tokens);
  own.position_bS = decode.position_bS();
  if (!tokens.count_b.empty()) own.length_b = torch::tensor(tokens.count_b);
  const Rotation turn = rotation(decode.position_bS().unsqueeze(1));
  torch::Tensor x_bSC = embed(token_bS, decode.position_bS());
  auto layer = cache.layers.begin();
  for (const auto& module : *blocks_) {
    x_bSC = module->as<DecoderBlockImpl>()->decode(x_bSC, turn, own, {decode, *layer++}).y;
  }
  decode.advance(cache);
  return norm_->forward(x_bSC);
}

void Gpt2::list_products(double /*rows*/, ProductList& list) const {
  const auto tokens = static_cast<double>(tokens_);
  list.apply(tokens_VC_, 0);
  list.apply(positions_TC_, 0);
  list.visit(*blocks_, tokens);
  list.visit(*norm_, tokens);
}

namespace {
const AutomaticValues<Gpt2::Options> automatic_gpt2_values(ResolvedOn::kComparison);
const Registration<Backbone, Gpt2> registered_gpt2{
    "gpt2", "GPT-2 and later decoders of language models, dense or with experts"};
}  // namespace

}  // namespace shoal
