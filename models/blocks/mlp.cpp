#include "models/blocks/mlp.h"

#include <ATen/ops/matmul.h>

namespace shoal {

Activation activation_of(Gelu gelu) {
  return gelu == Gelu::kErf ? Activation::kGelu : Activation::kGeluTanh;
}

MlpImpl::MlpImpl(int64_t width, int64_t hidden, Gelu gelu, const torch::TensorOptions& options)
    : gelu_(gelu) {
  fc1 = register_module("fc1", Linear(width, hidden, options));
  fc2 = register_module("fc2", Linear(hidden, width, options));
}

torch::Tensor MlpImpl::forward(const torch::Tensor& x) const {
  const torch::Dtype dtype = x.scalar_type();
  const torch::Tensor hidden = at::matmul(x, fc1->weight.to(dtype).t());
  return fc2->forward(bias_activation(hidden, fc1->bias.to(dtype), activation_of(gelu_)));
}

}  // namespace shoal
