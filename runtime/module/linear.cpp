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

torch::Tensor linear(const torch::Tensor& x, const DenseWeights& weights,
                     const LinearBranch* branch) {
  const torch::Dtype dtype = x.scalar_type();
  const torch::Tensor weight = weights.weight.to(dtype);
  const torch::Tensor bias = weights.bias.defined() ? weights.bias.to(dtype) : weights.bias;
  if (branch == nullptr) return at::linear(x, weight, bias);
  const torch::Tensor joined = branch->join(x, at::linear(x, weight));
  return bias.defined() ? joined + bias : joined;
}

torch::Tensor LinearImpl::forward(const torch::Tensor& x) const {
  return linear(x, {formed(weight, form_.get()), bias}, branch_.get());
}

bool LinearImpl::set_branch(const torch::Tensor& parameter, const std::string& name,
                            std::shared_ptr<LinearBranch> branch) {
  if (!parameter.is_same(weight)) return false;
  branch_ = register_module(name, std::move(branch));
  return true;
}

bool LinearImpl::set_form(const torch::Tensor& parameter, std::shared_ptr<const WeightForm> form) {
  if (!parameter.is_same(weight)) return false;
  form_ = std::move(form);
  return true;
}

}  // namespace shoal
