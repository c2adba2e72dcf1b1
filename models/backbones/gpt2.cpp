#include "models/backbones/gpt2.h"

#include <ATen/ops/embedding.h>
#include <fmt/format.h>

#include <cmath>

#include "runtime/base/integers.h"
#include "runtime/options/automatic_values.h"
#include "runtime/options/automatic_width.h"

// b sequences on this rank  S tokens  C width  H head width
namespace shoal {
namespace {

constexpr double kRopeBase = 10000.0;
constexpr int64_t kSwigluMultiple = 64;

Gpt2BlockImpl::Sizes block_sizes(const Gpt2::Options& options, const std::string& prefix,
                                 int64_t block) {
  const Init weight = Init::normal(options.init_std);
  const Init residual =
      Init::normal(options.init_std / std::sqrt(2.0 * static_cast<double>(options.depth)));
  Gpt2BlockImpl::Sizes sizes;
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
    : Decoder({.name = "gpt2",
               .width = options.width,
               .head_width = options.width / options.heads,
               .context = options.context,
               .pad_vocabulary = options.pad_vocabulary,
               .init_std = options.init_std,
               .rope_base = options.position == PositionKind::kRope
                                ? std::optional(options.rope_base.value_or(kRopeBase))
                                : std::nullopt,
               .norm = {options.norm, kDecoderEps, options.bias}},
              context),
      drop_embedding_(options.dropout, context.build.prefix + "embedding.dropout") {
  const ModelContext build = block_context(context.build, /*is_causal=*/true);
  if (options.position == PositionKind::kLearned) {
    positions_TC_ = add_parameter("positions", {context_length(), options.width},
                                  build.tensor_options, Init::normal(options.init_std));
  }
  torch::nn::ModuleList blocks;
  for (int64_t i = 0; i < options.depth; ++i) {
    blocks->push_back(
        Gpt2Block(block_sizes(options, build.prefix, i), options.feed_forward, build));
  }
  set_blocks(std::move(blocks), build.tensor_options);
}

torch::Tensor Gpt2::embed(const torch::Tensor& token_bS, const torch::Tensor& position,
                          const StepContext& step) const {
  torch::Tensor x_bSC = at::embedding(tokens_VC_, token_bS);
  if (positions_TC_.defined()) x_bSC = x_bSC + at::embedding(positions_TC_, position);
  return drop_embedding_.forward(x_bSC.to(compute_dtype_), step);
}

const AutomaticValues<Gpt2::Options> automatic_gpt2_values(ResolvedOn::kComparison);
const Registration<Backbone, Gpt2> registered_gpt2{
    "gpt2", "GPT-2 and later decoder language models, dense or with experts"};

}  // namespace shoal
