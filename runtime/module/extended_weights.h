#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/module/linear_branch.h"
#include "runtime/module/linear_product.h"
#include "runtime/module/module.h"
#include "runtime/module/sparse_place.h"
#include "runtime/module/weight_form.h"

namespace shoal {

/// A linear layer with one W [out, in] and one b [out], which may be undefined. W may have a form
/// and be trained sparse, another kernel may compute its product, and a branch be added beside it.
class ExtendedWeights : public ModuleBase, public HasWeightForms, public HasSparsePlaces {
 public:
  bool set_form(const torch::Tensor& parameter, std::shared_ptr<const WeightForm> form) override;
  std::vector<torch::Tensor> form_leaves() const override;
  /// Makes `product` compute x Wᵀ whenever it is on. False unless `parameter` is W.
  bool set_product(const torch::Tensor& parameter, std::shared_ptr<const LinearProduct> product);
  /// Adds `branch` as a submodule `name`. False unless `parameter` is W.
  bool set_branch(const torch::Tensor& parameter, const std::string& name,
                  std::shared_ptr<LinearBranch> branch);
  std::vector<SparsePlace> sparse_places() const override { return {{weight}}; }

  torch::Tensor weight, bias;

 protected:
  /// True if the layer is plain x Wᵀ + b with formed_weight().
  bool is_dense() const { return branch_ == nullptr && !has_product(); }
  torch::Tensor formed_weight() const { return formed(weight, form_.get()); }
  /// The layer's output, in x's dtype.
  torch::Tensor output_of(const torch::Tensor& x) const;

 private:
  bool has_product() const { return product_ != nullptr && product_->is_on(); }
  torch::Tensor multiply(const torch::Tensor& x, const torch::Tensor& added_bias) const;

  std::shared_ptr<const WeightForm> form_;  ///< these three may be null
  std::shared_ptr<const LinearProduct> product_;
  std::shared_ptr<const LinearBranch> branch_;
};

}  // namespace shoal
