#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/module/module.h"

// B sequences  S tokens  C channels
namespace shoal {

/// Number of tokens in a convolution: the token itself and the two before it.
inline constexpr int64_t kConvTaps = 3;

/// y[t] = w[0] x[t - 2] + w[1] x[t - 1] + w[2] x[t] for each channel; the two tokens before the
/// first are `before_B2C`, or zeros if that is undefined.
///
/// Shapes: x [B, S, C] contiguous, weight [3, C] -> [B, S, C]. Differentiable in x and weight.
/// bfloat16 is computed in float32.
torch::Tensor causal_conv(const torch::Tensor& x_BSC, const torch::Tensor& weight_3C,
                          const torch::Tensor& before_B2C = {});

/// A causal depthwise convolution over three tokens. Parameter: weight [3, C], U(-a, a) with a = 1
/// / sqrt(3), as PyTorch initialises such a convolution.
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
