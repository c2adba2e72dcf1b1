#include "models/decoder/decoder_block.h"

// B sequences  S tokens  C width
namespace shoal {

DecoderBlockImpl::DecoderBlockImpl(const Sizes& sizes, const FeedForwardOptions& options,
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

BlockOutput DecoderBlockImpl::add_mlp(const torch::Tensor& y1_BSC, const StepContext& step) const {
  const NormedBranch y1 = mlp_norm_->branch(y1_BSC);
  BlockOutput output = feed_forward_.forward(y1.normed, step);
  output.y = y1.residual + drop_mlp_.forward(output.y, step);
  return output;
}

BlockOutput DecoderBlockImpl::forward(const torch::Tensor& x_BSC, const Rotation& rotation,
                                      const StepContext& step) const {
  const NormedBranch x = attention_norm_->branch(x_BSC);
  const torch::Tensor mixed_BSC = attention_->forward(x.normed, rotation, step);
  return add_mlp(x.residual + drop_attention_.forward(mixed_BSC, step), step);
}

BlockOutput DecoderBlockImpl::decode(const torch::Tensor& x_BSC, const Rotation& rotation,
                                     const StepContext& step, const Decoding& decoding) const {
  const torch::Tensor normed = attention_norm_->forward(x_BSC);
  return add_mlp(x_BSC + attention_->decode(normed, rotation, decoding.cache, decoding.step), step);
}

}  // namespace shoal
