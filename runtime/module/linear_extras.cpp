#include "runtime/module/linear_extras.h"

#include <ATen/ops/linear.h>

#include <utility>

namespace shoal {

std::vector<torch::Tensor> LinearExtras::form_leaves() const {
  if (form == nullptr) return {};
  return form->leaves();
}

torch::Tensor LinearExtras::multiply(const torch::Tensor& x, const torch::Tensor& weight,
                                     const torch::Tensor& bias) const {
  if (has_product()) return product->multiply(x, weight, bias);
  const torch::Dtype dtype = x.scalar_type();
  return at::linear(x, formed(weight).to(dtype), bias.defined() ? bias.to(dtype) : bias);
}

torch::Tensor LinearExtras::apply(const torch::Tensor& x, const torch::Tensor& weight,
                                  const torch::Tensor& bias) const {
  if (branch == nullptr) return multiply(x, weight, bias);
  const torch::Tensor joined = branch->join(x, multiply(x, weight, {}));
  return bias.defined() ? joined + bias.to(x.scalar_type()) : joined;
}

bool ExtendedWeights::set_form(const torch::Tensor& parameter,
                               std::shared_ptr<const WeightForm> form) {
  if (!parameter.is_same(weight)) return false;
  extras_.form = std::move(form);
  return true;
}

bool ExtendedWeights::set_branch(const torch::Tensor& parameter, const std::string& name,
                                 std::shared_ptr<LinearBranch> branch) {
  if (!parameter.is_same(weight)) return false;
  extras_.branch = register_module(name, std::move(branch));
  return true;
}

bool ExtendedWeights::set_product(const torch::Tensor& parameter,
                                  std::shared_ptr<const LinearProduct> product) {
  if (!parameter.is_same(weight)) return false;
  extras_.product = std::move(product);
  return true;
}

}  // namespace shoal
