#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/module/module.h"

namespace shoal {

/// y = x Wᵀ + b over the last dimension, in x's dtype, to which W and b are cast. W is
/// Glorot-uniform, b is N(0, 1e-6) unless said otherwise.
///
/// Parameters: weight [out, in], bias [out].
class LinearImpl : public ModuleBase {
 public:
  LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options);
  LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options, const Init& weight_init,
             const Init& bias_init);
  torch::Tensor forward(const torch::Tensor& x) const;

  torch::Tensor weight, bias;
};
TORCH_MODULE(Linear);

/// First values of a bias: N(0, 1e-6), as timm's Mixer and V-MoE have it.
Init bias_init();

}  // namespace shoal
