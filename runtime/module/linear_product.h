#pragma once

#include <torch/types.h>

namespace shoal {

/// Computes y = x Wᵀ + b of a linear layer by kernels for a W that is mostly zero.
class LinearProduct {
 public:
  virtual ~LinearProduct() = default;
  /// True if the layer must call multiply() now; otherwise the layer runs its own dense product.
  virtual bool is_on() const = 0;
  /// [..., in] -> [..., out], in x's dtype. `weight` is the raw parameter. If the layer
  /// permutes the parameter's rows or columns, this object knows the permutation and applies it.
  /// `bias` may be undefined. Differentiable in all three.
  virtual torch::Tensor multiply(const torch::Tensor& x, const torch::Tensor& weight,
                                 const torch::Tensor& bias) const = 0;
};

}  // namespace shoal
