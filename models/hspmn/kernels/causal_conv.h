#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/module/module.h"

// B sequences  S tokens  C channels
namespace shoal {

/// Width of the convolution: a token reads itself and the two tokens before it.
inline constexpr int64_t kConvTaps = 3;

/// Causal depthwise convolution, y[t] = w[0] x[t - 2] + w[1] x[t - 1] + w[2] x[t] per channel. The
/// two tokens before the first are `before_B2C`, or zeros if it is undefined.
///
/// Shapes: x [B, S, C] contiguous, weight [3, C] -> [B, S, C]. Differentiable in x and weight.
/// bfloat16 is computed in float32.
torch::Tensor causal_conv(const torch::Tensor& x_BSC, const torch::Tensor& weight_3C,
                          const torch::Tensor& before_B2C = {});

/// Causal depthwise convolution over three tokens, as a module. Parameter: weight [3, C] from U(-a,
/// a), a = 1 / sqrt(3), as PyTorch initialises such a layer.
class CausalConvImpl : public ModuleBase {
 public:
  CausalConvImpl(int64_t channels, const torch::TensorOptions& options);
  torch::Tensor forward(const torch::Tensor& x_BSC, const torch::Tensor& before_B2C = {}) const {
    return causal_conv(x_BSC, weight, before_B2C);
  }

  torch::Tensor weight;
};
TORCH_MODULE(CausalConv);

}  // namespace shoal
