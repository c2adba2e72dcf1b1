#pragma once

#include <torch/types.h>

#include <memory>
#include <string>

#include "runtime/module/module.h"

namespace shoal {

/// A second way from the inputs of a linear layer to its outputs, beside the product with W:
/// y = join(x, x Wᵀ) + b.
class LinearBranch : public ModuleBase {
 public:
  /// x [..., in], x Wᵀ [..., out] -> [..., out], in x's dtype.
  virtual torch::Tensor join(const torch::Tensor& x, const torch::Tensor& product) const = 0;
};

/// A module that has linear layers.
class HasLinearBranch {
 public:
  virtual ~HasLinearBranch() = default;
  /// The layer of this weight has `branch` from now on, as a submodule `name`. False if it is no
  /// layer of this module.
  virtual bool set_branch(const torch::Tensor& weight, const std::string& name,
                          std::shared_ptr<LinearBranch> branch) = 0;
};

}  // namespace shoal
