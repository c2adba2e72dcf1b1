#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "runtime/module/extended_weights.h"

namespace shoal {

/// W [out, in] and b [out] of y = x Wᵀ + b; b may be undefined.
struct DenseWeights {
  torch::Tensor weight, bias;
};

/// y = x Wᵀ + b over the last dimension, in x's dtype, to which W and b are cast. Defaults: W
/// Glorot-uniform, b N(0, 1e-6). W may have a weight form, another kernel may compute the product,
/// and a branch may be added beside it (extended_weights.h).
///
/// Parameters: weight [out, in] and, unless it has no first values, bias [out].
class LinearImpl : public ExtendedWeights {
 public:
  LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options);
  LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options, const Init& weight_init,
             const std::optional<Init>& bias_init);
  virtual torch::Tensor forward(const torch::Tensor& x) const;
  /// The weights with which a fused kernel may compute the layer itself; nothing if the layer is
  /// not plain x Wᵀ + b, and its forward must be called. Kernels read the parameters only through
  /// this.
  virtual std::optional<DenseWeights> dense() const {
    if (!is_dense()) return std::nullopt;
    return DenseWeights{formed_weight(), bias};
  }
};
TORCH_MODULE(Linear);

/// Initial values of a bias: N(0, 1e-6), as in timm's Mixer and V-MoE.
Init bias_init();

/// Initial values of an MLP of two linear layers; a gate is initialised like the first one.
struct MlpInits {
  Init fc1_weight, fc2_weight, bias;
};
/// Linear's defaults.
MlpInits xavier_inits(int64_t width, int64_t hidden);

}  // namespace shoal
