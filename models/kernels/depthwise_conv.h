#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/module/module.h"

// B images  H height  W width  C channels
namespace shoal {

/// Depthwise 7 x 7 convolution with zero padding, as in ConvNeXt blocks; sizes stay equal.
///
/// Parameters: weight [C, 1, 7, 7] from N(0, 0.02), bias [C] of zeros. ConvNeXt truncates the
/// normal at 2, a hundred deviations away; Shoal does not.
class DepthwiseConvImpl : public ModuleBase {
 public:
  DepthwiseConvImpl(int64_t channels, const torch::TensorOptions& options);
  /// [B, H, W, C] -> [B, H, W, C], contiguous. B may be 0.
  torch::Tensor forward(const torch::Tensor& x_BHWC) const;

  torch::Tensor weight, bias;
};
TORCH_MODULE(DepthwiseConv);

}  // namespace shoal
