#include "runtime/module/linear_extras.h"

#include <ATen/ops/linear.h>

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

}  // namespace shoal
