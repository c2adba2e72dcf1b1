#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/module/linear_branch.h"
#include "runtime/module/linear_product.h"
#include "runtime/module/module.h"
#include "runtime/module/weight_form.h"

namespace shoal {

/// Optional extensions of a linear layer beside W and b; each may be null.
struct LinearExtras {
  std::shared_ptr<const WeightForm> form;        ///< transforms W before each use
  std::shared_ptr<const LinearProduct> product;  ///< computes x Wᵀ while is_on()
  std::shared_ptr<const LinearBranch> branch;    ///< combines its output with x Wᵀ

  /// True if the layer is plain x Wᵀ + b with formed(W).
  bool is_dense() const { return branch == nullptr && !has_product(); }
  torch::Tensor formed(const torch::Tensor& weight) const {
    return shoal::formed(weight, form.get());
  }
  std::vector<torch::Tensor> form_leaves() const;
  /// The layer's output, in x's dtype; the bias may be undefined.
  torch::Tensor apply(const torch::Tensor& x, const torch::Tensor& weight,
                      const torch::Tensor& bias) const;

 private:
  bool has_product() const { return product != nullptr && product->is_on(); }
  torch::Tensor multiply(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias) const;
};

/// A module with one W [out, in] and one b [out], which may be undefined, that takes such extras.
class ExtendedWeights : public ModuleBase,
                        public HasWeightForms,
                        public HasLinearBranch,
                        public HasLinearProduct {
 public:
  bool set_form(const torch::Tensor& parameter, std::shared_ptr<const WeightForm> form) override;
  std::vector<torch::Tensor> form_leaves() const override { return extras_.form_leaves(); }
  bool set_branch(const torch::Tensor& parameter, const std::string& name,
                  std::shared_ptr<LinearBranch> branch) override;
  bool set_product(const torch::Tensor& parameter,
                   std::shared_ptr<const LinearProduct> product) override;

  torch::Tensor weight, bias;

 protected:
  LinearExtras extras_;
};

}  // namespace shoal
