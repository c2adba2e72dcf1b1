#include "models/decoder/decoder_block.h"

// b sequences on this rank  S tokens  C width
namespace shoal {

Gpt2BlockImpl::Gpt2BlockImpl(const Sizes& sizes, const FeedForwardOptions& options,
                             const BuildContext& build)
    : attention_norm_(register_module(
          "attention_norm", LayerNorm(sizes.place.width, build.tensor_options, sizes.norm))),
      attention_(
          register_module("attention", CausalAttention(sizes.attention, build.tensor_options))),
      mlp_norm_(register_module("mlp_norm",
                                LayerNorm(sizes.place.width, build.tensor_options, sizes.norm))),
      feed_forward_(*this, options, sizes.place, build),
      drop_attention_(sizes.dropout, sizes.place.path() + ".attention.dropout"),
      drop_mlp_(sizes.dropout, sizes.place.path() + ".mlp.dropout") {}

BlockOutput Gpt2BlockImpl::forward(const torch::Tensor& x_bSC, const DecoderPass& pass) {
  const NormedBranch x = attention_norm_->branch(x_bSC);
  const torch::Tensor mixed_bSC =
      pass.decoding == nullptr
          ? attention_->forward(x.normed, pass.rotation, pass.step)
          : attention_->decode(x.normed, pass.rotation, pass.decoding->cache, pass.decoding->step);
  const NormedBranch y1 =
      mlp_norm_->branch(x.residual + drop_attention_.forward(mixed_bSC, pass.step));
  BlockOutput output = feed_forward_.forward(y1.normed, pass.step);
  output.y = y1.residual + drop_mlp_.forward(output.y, pass.step);
  return output;
}

}  // namespace shoal
