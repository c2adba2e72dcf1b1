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
  const torch::Tensor mixed_BSC = attention_->forward(attention_norm_->forward(x_BSC));
  const torch::Tensor y1_BSC = x_BSC + drop_attention_.forward(mixed_BSC, step);
  BlockOutput output = feed_forward_.forward(mlp_norm_->forward(y1_BSC), step);
  output.y = y1_BSC + drop_mlp_.forward(output.y, step);
  return output;
}

}  // namespace shoal
