#include "models/blocks/mlp.h"

#include <ATen/ops/matmul.h>

#include <optional>

#include "models/kernels/token_linear.h"

// B images  S tokens  C width  H hidden
namespace shoal {
namespace {

std::optional<Init> bias_of(const MlpShape& shape, const MlpInits& inits) {
  return shape.has_bias ? std::optional(inits.bias) : std::nullopt;
}

}  // namespace

Activation activation_of(Gelu gelu) {
  return gelu == Gelu::kErf ? Activation::kGelu : Activation::kGeluTanh;
}

MlpImpl::MlpImpl(int64_t width, int64_t hidden, Gelu gelu, const torch::TensorOptions& options)
    : MlpImpl(MlpShape{width, hidden}, gelu, xavier_inits(width, hidden), options) {}

MlpImpl::MlpImpl(const MlpShape& shape, Gelu gelu, const MlpInits& inits,
                 const torch::TensorOptions& options)
    : MlpImpl(Linear(shape.width, shape.hidden, options, inits.fc1_weight, bias_of(shape, inits)),
              Linear(shape.hidden, shape.width, options, inits.fc2_weight, bias_of(shape, inits)),
              gelu) {}

MlpImpl::MlpImpl(Linear first, Linear second, Gelu gelu) : gelu_(gelu) {
  fc1 = register_module("fc1", std::move(first));
  fc2 = register_module("fc2", std::move(second));
}

torch::Tensor MlpImpl::forward(const torch::Tensor& x) const {
  torch::Tensor hidden, bias;
  if (const auto dense = fc1->dense()) {  // the activation's kernel adds the bias
    hidden = at::matmul(x, dense->weight.to(x.scalar_type()).t());
    if (dense->bias.defined()) bias = dense->bias.to(x.scalar_type());
  } else {
    hidden = fc1->forward(x).contiguous();
  }
  return fc2->forward(bias_activation(hidden, bias, activation_of(gelu_)));
}

torch::Tensor MlpImpl::forward_over_tokens(const torch::Tensor& x_BSC) const {
  const torch::Tensor hidden_BHC = token_linear(x_BSC, *fc1);
  return token_linear(bias_activation(hidden_BHC, {}, activation_of(gelu_)), *fc2);
}

GatedMlpImpl::GatedMlpImpl(const MlpShape& shape, const MlpInits& inits,
                           const torch::TensorOptions& options) {
  const auto add = [&](const char* name, int64_t in, int64_t out, const Init& weight) {
    return register_module(name, Linear(in, out, options, weight, bias_of(shape, inits)));
  };
  gate = add("gate", shape.width, shape.hidden, inits.fc1_weight);
  fc1 = add("fc1", shape.width, shape.hidden, inits.fc1_weight);
  fc2 = add("fc2", shape.hidden, shape.width, inits.fc2_weight);
}

torch::Tensor GatedMlpImpl::forward(const torch::Tensor& x) const {
  const torch::Tensor open = bias_activation(gate->forward(x), {}, Activation::kSilu);
  return fc2->forward(open * fc1->forward(x));
}

}  // namespace shoal
