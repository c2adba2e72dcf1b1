#include "models/vision/mixer_block.h"

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
  const NormedBranch x = token_norm->branch(x_BSC);  // Sparse-MLP eq. 8
  const NormedBranch y1 =
      channel_norm->branch(token_mlp->forward_over_tokens(x.normed).add_(x.residual));
  // Not in place: a Linear returns a view, whose gradient autograd would copy four times.
  return y1.residual + channel_mlp->forward(y1.normed);  // eq. 9
}

void MixerBlockImpl::list_products(double rows, ProductList& list) const {
  list.visit(*token_norm, rows);
  list.visit(*token_mlp, static_cast<double>(token_norm->weight.size(0)));
  list.visit(*channel_norm, rows);
  list.visit(*channel_mlp, rows);
}

}  // namespace shoal
