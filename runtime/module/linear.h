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

/// y = x Wᵀ + b over the last dimension, in x's dtype, to which W and b are cast. By default W
/// starts Glorot-uniform, and b as bias_init() below. Sparse training may permute W in each forward
/// pass, replace the product's kernel, or add a branch (ExtendedWeights).
///
/// Parameters: weight [out, in], and bias [out] unless `bias_init` is nullopt.
class LinearImpl : public ExtendedWeights {
 public:
  LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options);
  LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options, const Init& weight_init,
             const std::optional<Init>& bias_init);
  virtual torch::Tensor forward(const torch::Tensor& x) const;
  /// Returns W, which may differ from the parameter, and b, for fused kernels in place of
  /// forward(). nullopt if the layer computes more than x Wᵀ + b; the caller then calls forward().
  virtual std::optional<DenseWeights> dense() const {
    if (!is_dense()) return std::nullopt;
    return DenseWeights{formed_weight(), bias};
  }
};
TORCH_MODULE(Linear);

/// Initial values of a bias: normal, standard deviation 1e-6, as in timm's Mixer and V-MoE.
Init bias_init();

/// Initial values of an MLP of two linear layers; the gate of a gated MLP starts like fc1.
struct MlpInits {
  Init fc1_weight, fc2_weight, bias;
};
/// Linear's defaults for an MLP width -> hidden -> width.
MlpInits xavier_inits(int64_t width, int64_t hidden);

}  // namespace shoal
