#include "runtime/module/extended_weights.h"

#include <ATen/ops/linear.h>

#include <utility>

namespace shoal {

bool ExtendedWeights::set_form(const torch::Tensor& parameter,
                               std::shared_ptr<const WeightForm> form) {
  if (!parameter.is_same(weight)) return false;
  form_ = std::move(form);
  return true;
}

std::vector<torch::Tensor> ExtendedWeights::form_leaves() const {
  if (form_ == nullptr) return {};
  return form_->leaves();
}

bool ExtendedWeights::set_product(const torch::Tensor& parameter,
                                  std::shared_ptr<const LinearProduct> product) {
  if (!parameter.is_same(weight)) return false;
  product_ = std::move(product);
  return true;
}

bool ExtendedWeights::set_branch(const torch::Tensor& parameter, const std::string& name,
                                 std::shared_ptr<LinearBranch> branch) {
  if (!parameter.is_same(weight)) return false;
  branch_ = register_module(name, std::move(branch));
  return true;
}

torch::Tensor ExtendedWeights::multiply(const torch::Tensor& x,
                                        const torch::Tensor& added_bias) const {
  if (has_product()) return product_->multiply(x, weight, added_bias);
  const torch::Dtype dtype = x.scalar_type();
  return at::linear(x, formed_weight().to(dtype),
                    added_bias.defined() ? added_bias.to(dtype) : added_bias);
}

torch::Tensor ExtendedWeights::output_of(const torch::Tensor& x) const {
  if (branch_ == nullptr) return multiply(x, bias);
  const torch::Tensor joined = branch_->join(x, multiply(x, {}));
  return bias.defined() ? joined + bias.to(x.scalar_type()) : joined;
}

}  // namespace shoal
