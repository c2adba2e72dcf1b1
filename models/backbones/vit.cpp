#include "models/backbones/vit.h"

#include <string>

#include "models/blocks/recompute.h"
#include "models/vision/vit_block.h"
#include "runtime/device/real_types.h"
#include "runtime/options/automatic_values.h"
#include "runtime/options/automatic_width.h"

// b images on this rank  S tokens  C width
namespace shoal {

torch::Tensor sin_cos_positions(int64_t rows, int64_t columns, int64_t width,
                                const torch::TensorOptions& options) {
  TORCH_CHECK(width % 4 == 0, "sin_cos_positions: width ", width, " is not a multiple of 4");
  if (options.device().is_meta()) return torch::empty({rows * columns, width}, options);
  constexpr double kBase = 10000.0;
  const auto wide = torch::TensorOptions(torch::kFloat64);
  const int64_t quarter = width / 4;
  const torch::Tensor frequency =
      torch::pow(kBase, -torch::arange(quarter, wide) / static_cast<double>(quarter));
  const torch::Tensor row_S = torch::arange(rows, wide).repeat_interleave(columns);
  const torch::Tensor column_S = torch::arange(columns, wide).repeat({rows});
  const torch::Tensor by_row = row_S.outer(frequency), by_column = column_S.outer(frequency);
  return torch::cat({by_row.sin(), by_row.cos(), by_column.sin(), by_column.cos()}, 1).to(options);
}

void Vit::Options::validate(Problems& problems) const {
  if (width % heads != 0) {
    problems.add("heads", std::to_string(heads) + " heads do not divide a width of " +
                              std::to_string(width));
  }
  if (positions == TokenPositions::kSinCos && width % 4 != 0) {
    problems.add("width", "sin_cos positions need a multiple of 4, not " + std::to_string(width));
  }
  check_automatic_width("hidden", hidden, hidden_width(), width, problems);
  feed_forward.check(depth, problems);
}

Vit::Vit(const Options& options, const Context& context)
    : width_(options.width),
      patch_(options.patch),
      features_(context.features),
      recomputes_(context.build.recomputes) {
  const torch::TensorOptions& tensor = context.build.tensor_options;
  const ImageShape image = require_images(context.data, "model.backbone", "vit");
  const int64_t patches = num_patches(image, options.patch);
  stem_ = register_module("stem", PatchEmbed(image.channels, options.patch, options.width, tensor));
  const bool has_cls = options.pool == Pooling::kCls;
  constexpr double kTokenStdDev = 0.02;
  const Init tokens = Init::normal(kTokenStdDev);
  if (has_cls) cls_C_ = add_parameter("cls", {options.width}, tensor, tokens);
  if (options.positions == TokenPositions::kLearned) {
    positions_SC_ =
        add_parameter("positions", {patches + (has_cls ? 1 : 0), options.width}, tensor, tokens);
  } else {
    positions_SC_ = sin_cos_positions(image.height / options.patch, image.width / options.patch,
                                      options.width, tensor);
    if (has_cls) {
      positions_SC_ = torch::cat({torch::zeros({1, options.width}, tensor), positions_SC_});
    }
  }
  for (int64_t i = 0; i < options.depth; ++i) {
    const FeedForward::Place place{options.width, options.hidden_width(), options.gelu, i,
                                   options.depth, context.build.prefix};
    blocks_->push_back(
        VitBlock(VitBlockImpl::Sizes{options.heads, place,
                                     drop_path_rate(options.drop_path, i, options.depth),
                                     options.layer_scale},
                 options.feed_forward, context.build));
  }
  register_module("blocks", blocks_);
  norm_ = register_module("norm", LayerNorm(options.width, tensor));
}

ModelOutput Vit::forward(const ModelInput& input, const StepContext& step) {
  ModelOutput output;
  torch::Tensor x_bSC = stem_->forward(input.image_bCHW);
  const bool has_cls = cls_C_.defined();
  const torch::Dtype dtype = x_bSC.scalar_type();
  if (has_cls) {
    x_bSC = torch::cat({cls_C_.to(dtype).expand({x_bSC.size(0), 1, width_}), x_bSC}, 1);
  }
  x_bSC = x_bSC + positions_SC_.to(dtype);
  for (const auto& block : *blocks_) {
    auto* vit_block = block->as<VitBlockImpl>();
    x_bSC = output.take(run_block(
        recomputes_, *vit_block, x_bSC,
        [vit_block, step](const torch::Tensor& x) { return vit_block->forward(x, step); }));
  }
  if (has_cls && features_ == Features::kPooled) {
    // The norm is one over each token: the class token's alone is computed.
    output.pooled_bD = at_least_float32(norm_->forward(x_bSC.select(1, 0).contiguous()));
  } else {
    output.set_tokens(norm_->forward(x_bSC), features_);
  }
  return output;
}

void Vit::list_products(double /*rows*/, ProductList& list) const {
  const auto tokens = static_cast<double>(positions_SC_.size(0));
  list.visit(*stem_, tokens - (cls_C_.defined() ? 1 : 0));
  list.apply(cls_C_, 0);
  list.apply(positions_SC_, 0);
  list.visit(*blocks_, tokens);
  list.visit(*norm_, tokens);
}

const AutomaticValues<Vit::Options> automatic_vit_widths(ResolvedOn::kComparison);
const Registration<Backbone, Vit> registered_vit{
    "vit", "Vision Transformer, dense, with experts or with Nexus layers"};

}  // namespace shoal
