#include "models/backbones/adaptive_attention.h"

#include <fmt/format.h>

#include <string>

#include "models/blocks/recompute.h"
#include "runtime/options/automatic_width.h"

// b images on this rank  N tokens  D width
namespace shoal {

void AdaptiveAttention::Options::validate(Problems& problems) const {
  if (width % heads != 0) {
    problems.add("heads", fmt::format("{} heads do not divide a width of {}", heads, width));
  }
  check_automatic_width("hidden", hidden, hidden_width(), width, problems);
}

AdaptiveAttention::AdaptiveAttention(const Options& options, const Context& context)
    : options_(options), features_(context.features), recomputes_(context.build.recomputes) {
  const torch::TensorOptions& tensor = context.build.tensor_options;
  const ImageShape image = require_images(context.data, "model.backbone", "adaptive_attention");
  const int64_t num_tokens = num_patches(image, options.patch);
  const Init init = Init::fan_in_uniform(image.channels * options.patch * options.patch);
  stem_ = register_module("stem",
                          PatchEmbed(image.channels, options.patch, options.width, tensor, init));
  constexpr double kPositionStdDev = 0.02;
  positions_ND_ = add_parameter("positions", {num_tokens, options.width}, tensor,
                                Init::normal(kPositionStdDev));
  AdaptiveBlockImpl::Sizes sizes;
  sizes.attention = {
      options.width, options.heads, {image.height / options.patch, image.width / options.patch}};
  sizes.hidden = options.hidden_width();
  for (int64_t i = 0; i < options.depth; ++i) {
    sizes.path = context.build.prefix + "blocks." + std::to_string(i);
    blocks_->push_back(AdaptiveBlock(sizes, options.attention, context.build));
  }
  register_module("blocks", blocks_);
  if (options.final_norm) {
    const NormOptions norm{.eps = kAdaptiveNormEps};
    norm_ = register_module("norm", LayerNorm(options.width, tensor, norm));
  }
}

ModelOutput AdaptiveAttention::forward(const ModelInput& input, const StepContext& step) {
  ModelOutput output;
  torch::Tensor x_bND = stem_->forward(input.image_bCHW);
  x_bND = x_bND + positions_ND_.to(x_bND.scalar_type());
  for (const auto& module : *blocks_) {
    auto* block = module->as<AdaptiveBlockImpl>();
    x_bND =
        output.take(run_block(recomputes_, *block, x_bND, [block, step](const torch::Tensor& x) {
          return block->forward(x, step);
        }));
  }
  output.set_tokens(norm_ ? norm_->forward(x_bND) : x_bND, features_);
  return output;
}

void AdaptiveAttention::list_products(double /*rows*/, ProductList& list) const {
  const auto tokens = static_cast<double>(positions_ND_.size(0));
  list.visit(*stem_, tokens);
  list.apply(positions_ND_, 0);
  list.visit(*blocks_, tokens);
  if (norm_) list.visit(*norm_, tokens);
}

const Registration<Backbone, AdaptiveAttention> registered_adaptive_attention{
    "adaptive_attention", "Transformer whose attention is a mixture of top-k attention experts"};

}  // namespace shoal
