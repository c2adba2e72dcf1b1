#pragma once

#include <torch/types.h>

#include "runtime/module/module.h"

namespace shoal {

/// A parallel branch of a linear layer beside the product with W: y = join(x, x Wᵀ) + b.
class LinearBranch : public ModuleBase {
 public:
  /// x [..., in], x Wᵀ [..., out] -> [..., out], in x's dtype.
  virtual torch::Tensor join(const torch::Tensor& x, const torch::Tensor& product) const = 0;
};

}  // namespace shoal
