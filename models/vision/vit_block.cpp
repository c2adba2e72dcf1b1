#include "models/vision/vit_block.h"

// B images  S tokens  C width
namespace shoal {
namespace {

torch::Tensor scaled(const torch::Tensor& branch_BSC, const torch::Tensor& scale_C) {
  return scale_C.defined() ? branch_BSC * scale_C.to(branch_BSC.scalar_type()) : branch_BSC;
}

}  // namespace

VitBlockImpl::VitBlockImpl(const Sizes& sizes, const FeedForwardOptions& options,
                           const BuildContext& build)
    : attention_norm_(
          register_module("attention_norm", LayerNorm(sizes.place.width, build.tensor_options))),
      attention_(register_module("attention",
                                 Attention(sizes.place.width, sizes.heads, build.tensor_options))),
      mlp_norm_(register_module("mlp_norm", LayerNorm(sizes.place.width, build.tensor_options))),
      feed_forward_(*this, options, sizes.place, build),
      drop_attention_(sizes.drop_path, sizes.place.path() + ".attention"),
      drop_mlp_(sizes.drop_path, sizes.place.path() + ".mlp") {
  if (!sizes.layer_scale) return;
  const Init init = Init::constant(*sizes.layer_scale);
  const int64_t width = sizes.place.width;
  attention_scale_C_ = add_parameter("attention_scale", {width}, build.tensor_options, init);
  mlp_scale_C_ = add_parameter("mlp_scale", {width}, build.tensor_options, init);
}

BlockOutput VitBlockImpl::forward(const torch::Tensor& x_BSC, const StepContext& step) const {
  const NormedBranch x = attention_norm_->branch(x_BSC);
  const torch::Tensor mixed_BSC = scaled(attention_->forward(x.normed), attention_scale_C_);
  const NormedBranch y1 = mlp_norm_->branch(x.residual + drop_attention_.forward(mixed_BSC, step));
  BlockOutput output = feed_forward_.forward(y1.normed, step);
  output.y = y1.residual + drop_mlp_.forward(scaled(output.y, mlp_scale_C_), step);
  return output;
}

}  // namespace shoal
