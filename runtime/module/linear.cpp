#include "runtime/module/linear.h"

#include <ATen/ops/linear.h>

#include <utility>

namespace shoal {

Init bias_init() { return Init::normal(1e-6); }

MlpInits xavier_inits(int64_t width, int64_t hidden) {
  const Init weight = Init::xavier_uniform(width, hidden);
  return {weight, weight, bias_init()};
}

LinearImpl::LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options)
    : LinearImpl(in, out, options, Init::xavier_uniform(in, out), shoal::bias_init()) {}

LinearImpl::LinearImpl(int64_t in, int64_t out, const torch::TensorOptions& options,
                       const Init& weight_init, const std::optional<Init>& bias_init) {
  weight = add_parameter("weight", {out, in}, options, weight_init);
  if (bias_init) bias = add_parameter("bias", {out}, options, *bias_init);
}

torch::Tensor LinearImpl::forward(const torch::Tensor& x) const {
  if (product_ != nullptr && product_->is_on()) return product_->multiply(x, weight, bias);
  const torch::Dtype dtype = x.scalar_type();
  return at::linear(x, formed(weight, form_.get()).to(dtype),
                    bias.defined() ? bias.to(dtype) : bias);
}

bool LinearImpl::set_form(const torch::Tensor& parameter, std::shared_ptr<const WeightForm> form) {
  if (!parameter.is_same(weight)) return false;
  form_ = std::move(form);
  return true;
}

bool LinearImpl::set_product(const torch::Tensor& parameter,
                             std::shared_ptr<const LinearProduct> product) {
  if (!parameter.is_same(weight)) return false;
  product_ = std::move(product);
  return true;
}

}  // namespace shoal
