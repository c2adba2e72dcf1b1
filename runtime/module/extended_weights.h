#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/module/module.h"
#include "runtime/module/sparse_place.h"
#include "runtime/module/weight_form.h"

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

/// A branch beside the product of a linear layer, such as a low-rank one: y = join(x, x Wᵀ) + b.
class LinearBranch : public ModuleBase {
 public:
  /// x [..., in], product x Wᵀ [..., out] -> y without b [..., out], in x's dtype.
  virtual torch::Tensor join(const torch::Tensor& x, const torch::Tensor& product) const = 0;
};

/// Base of linear layers, with one W [out, in] and one b [out], which may be undefined. Sparse
/// training extends it at three places. W may get a form, a function applied to W in each forward
/// pass, such as a learned permutation. A sparse kernel (product) may compute x Wᵀ. A branch, such
/// as a low-rank product, may run beside it. Masked elements of W are zeros, with and without such
/// a kernel. plan_sparsity finds W by sparse_places().
class ExtendedWeights : public ModuleBase, public HasWeightForms, public HasSparsePlaces {
 public:
  bool set_form(const torch::Tensor& parameter, std::shared_ptr<const WeightForm> form) override;
  /// Returns the form's own trained tensors, beside W; empty without a form.
  std::vector<torch::Tensor> form_leaves() const override;
  /// Makes `product` compute x Wᵀ while product->is_on(), such as once W has a mask; else W with
  /// its form is multiplied densely. `product` gets W without the form, and applies a permutation
  /// of W itself. Returns false unless `parameter` is W.
  bool set_product(const torch::Tensor& parameter, std::shared_ptr<const LinearProduct> product);
  /// Adds `branch` as a submodule `name`. Returns false unless `parameter` is W.
  bool set_branch(const torch::Tensor& parameter, const std::string& name,
                  std::shared_ptr<LinearBranch> branch);
  std::vector<SparsePlace> sparse_places() const override { return {{weight}}; }

  torch::Tensor weight, bias;

 protected:
  /// True if the output is plain x Wᵀ + b with W = formed_weight(): no branch, no other kernel.
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
