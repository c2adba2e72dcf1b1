#pragma once

#include <torch/types.h>

namespace shoal {

/// Computes y = x Wᵀ + b in place of a dense product: kernels for a W that is mostly zero.
class LinearProduct {
 public:
  virtual ~LinearProduct() = default;
  /// True if it computes the layer's products now; otherwise the layer does, with W in its form.
  virtual bool is_on() const = 0;
  /// [..., in] -> [..., out], in x's dtype. W is the parameter, without its form; b may be
  /// undefined. Differentiable in all three.
  virtual torch::Tensor multiply(const torch::Tensor& x, const torch::Tensor& weight,
                                 const torch::Tensor& bias) const = 0;
};

}  // namespace shoal
