#pragma once

#include <torch/types.h>

#include "runtime/module/module.h"

namespace shoal {

/// A branch beside the product of a linear layer, such as a low-rank one: y = join(x, x Wᵀ) + b.
class LinearBranch : public ModuleBase {
 public:
  /// x [..., in], product x Wᵀ [..., out] -> y without b [..., out], in x's dtype.
  virtual torch::Tensor join(const torch::Tensor& x, const torch::Tensor& product) const = 0;
};

}  // namespace shoal
