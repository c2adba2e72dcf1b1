#include "models/kernels/depthwise_conv.h"

#include <ATen/ops/conv2d.h>

// B images  H height  W width  C channels
namespace shoal {
namespace {

constexpr int64_t kSide = 7;

}  // namespace

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

}  // namespace shoal
