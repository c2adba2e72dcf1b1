#include "models/blocks/mixer_block.h"

namespace shoal {

MixerBlockImpl::MixerBlockImpl(const Sizes& sizes, const torch::TensorOptions& options) {
  token_norm = register_module("token_norm", LayerNorm(sizes.width, options));
  token_mlp =
      register_module("token_mlp", Mlp(sizes.tokens, sizes.token_hidden, sizes.gelu, options));
  channel_norm = register_module("channel_norm", LayerNorm(sizes.width, options));
  channel_mlp =
      register_module("channel_mlp", Mlp(sizes.width, sizes.channel_hidden, sizes.gelu, options));
}

torch::Tensor MixerBlockImpl::forward(const torch::Tensor& x_BSC) const {
  const torch::Tensor y1_BSC =  // Sparse-MLP eq. 8
      token_mlp->forward_over_tokens(token_norm->forward(x_BSC)).add_(x_BSC);
  return channel_mlp->forward(channel_norm->forward(y1_BSC)).add_(y1_BSC);  // eq. 9
}

}  // namespace shoal
