#pragma once

#include <torch/types.h>

#include <memory>
#include <string>

#include "runtime/module/module.h"

namespace shoal {

/// A parallel branch of a linear layer beside the product with W: y = join(x, x Wᵀ) + b.
class LinearBranch : public ModuleBase {
 public:
  /// x [..., in], x Wᵀ [..., out] -> [..., out], in x's dtype.
  virtual torch::Tensor join(const torch::Tensor& x, const torch::Tensor& product) const = 0;
};

/// A module that has linear layers.
class HasLinearBranch {
 public:
  virtual ~HasLinearBranch() = default;
  /// Adds `branch` to this weight's layer, as a submodule `name`. False if there is no such layer.
  virtual bool set_branch(const torch::Tensor& weight, const std::string& name,
                          std::shared_ptr<LinearBranch> branch) = 0;
};

}  // namespace shoal
