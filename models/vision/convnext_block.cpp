#include "models/vision/convnext_block.h"

#include <ATen/ops/conv2d.h>

// B images  H height  W width  S = H W  C channels
namespace shoal {

DepthwiseConvImpl::DepthwiseConvImpl(int64_t channels, const torch::TensorOptions& options) {
  weight = add_parameter("weight", {channels, 1, kSide, kSide}, options, Init::normal(0.02));
  bias = add_parameter("bias", {channels}, options, Init::zeros());
}

torch::Tensor DepthwiseConvImpl::forward(const torch::Tensor& x_BHWC) const {
  // A view: channels are the last dimension in memory before and after the convolution.
  const torch::Dtype dtype = x_BHWC.scalar_type();
  const torch::Tensor y_BCHW =
      at::conv2d(x_BHWC.permute({0, 3, 1, 2}), weight.to(dtype), bias.to(dtype), /*stride=*/1,
                 /*padding=*/kSide / 2, /*dilation=*/1, /*groups=*/weight.size(0));
  return y_BCHW.permute({0, 2, 3, 1}).contiguous();
}

ConvNextBlockImpl::ConvNextBlockImpl(const Sizes& sizes, const FeedForwardOptions& options,
                                     const BuildContext& build)
    : conv_(register_module("conv", DepthwiseConv(sizes.place.width, build.tensor_options))),
      norm_(register_module("norm", LayerNorm(sizes.place.width, build.tensor_options))),
      feed_forward_(*this, options, sizes.place, build),
      gamma_C_(add_parameter("gamma", {sizes.place.width}, build.tensor_options,
                             Init::constant(sizes.layer_scale))),
      drop_path_(sizes.drop_path, sizes.place.path()) {}

BlockOutput ConvNextBlockImpl::forward(const torch::Tensor& x_BHWC, const StepContext& step) const {
  const torch::Tensor normed_BSC = norm_->forward(conv_->forward(x_BHWC)).flatten(1, 2);
  BlockOutput output = feed_forward_.forward(normed_BSC, step);
  const torch::Tensor scaled_BHWC =
      (output.y * gamma_C_.to(x_BHWC.scalar_type())).view(x_BHWC.sizes());
  output.y = x_BHWC + drop_path_.forward(scaled_BHWC, step);
  return output;
}

ConvNextDownsampleImpl::ConvNextDownsampleImpl(int64_t channels, int64_t new_channels,
                                               const torch::TensorOptions& options)
    : norm_(register_module("norm", LayerNorm(channels, options))),
      conv_(register_module("conv", PatchEmbed(channels, 2, new_channels, options))) {}

torch::Tensor ConvNextDownsampleImpl::forward(const torch::Tensor& x_BHWC) const {
  const torch::Tensor y_BSC = conv_->forward(norm_->forward(x_BHWC).permute({0, 3, 1, 2}));
  return y_BSC.view({x_BHWC.size(0), x_BHWC.size(1) / 2, x_BHWC.size(2) / 2, y_BSC.size(2)});
}

}  // namespace shoal
