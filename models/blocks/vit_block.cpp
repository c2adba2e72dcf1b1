#include "models/blocks/vit_block.h"

// B images  S tokens  C width
namespace shoal {

VitBlockImpl::VitBlockImpl(const Sizes& sizes, const FeedForwardOptions& options,
                           const BuildContext& build)
    : attention_norm_(
          register_module("attention_norm", LayerNorm(sizes.place.width, build.tensor_options))),
      attention_(register_module("attention",
                                 Attention(sizes.place.width, sizes.heads, build.tensor_options))),
      mlp_norm_(register_module("mlp_norm", LayerNorm(sizes.place.width, build.tensor_options))),
      feed_forward_(*this, options, sizes.place, build),
      drop_attention_(sizes.drop_path, sizes.place.path() + ".attention"),
      drop_mlp_(sizes.drop_path, sizes.place.path() + ".mlp") {}

BlockOutput VitBlockImpl::forward(const torch::Tensor& x_BSC, const StepContext& step) const {
  const NormedBranch x = attention_norm_->branch(x_BSC);
  const torch::Tensor mixed_BSC = attention_->forward(x.normed);
  const NormedBranch y1 = mlp_norm_->branch(x.residual + drop_attention_.forward(mixed_BSC, step));
  BlockOutput output = feed_forward_.forward(y1.normed, step);
  output.y = y1.residual + drop_mlp_.forward(output.y, step);
  return output;
}

}  // namespace shoal
