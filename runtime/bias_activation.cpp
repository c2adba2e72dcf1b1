#include "runtime/bias_activation.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace shoal {
namespace {

torch::Tensor call_forward(torch::Tensor& x, const std::optional<torch::Tensor>& bias,
                           int64_t activation, int64_t dim, bool keep_derivative) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("shoal::bias_activation_forward", "")
                             .typed<torch::Tensor(torch::Tensor&, const std::optional<torch::Tensor>&,
                                                  int64_t, int64_t, bool)>();
  const at::AutoDispatchBelowADInplaceOrView guard;
  return op.call(x, bias, activation, dim, keep_derivative);
}

void call_backward(torch::Tensor& grad, const torch::Tensor& derivative,
                   const std::optional<torch::Tensor>& bias_grad, int64_t dim) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("shoal::bias_activation_backward", "")
                             .typed<void(torch::Tensor&, const torch::Tensor&,
                                         const std::optional<torch::Tensor>&, int64_t)>();
  const at::AutoDispatchBelowADInplaceOrView guard;
  op.call(grad, derivative, bias_grad, dim);
}

std::optional<torch::Tensor> optional_of(const torch::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

int64_t checked_dim(const torch::Tensor& x, const torch::Tensor& bias, int64_t dim) {
  TORCH_CHECK(x.is_contiguous(), "bias_activation: x must be contiguous");
  TORCH_CHECK(x.scalar_type() == torch::kFloat32 || x.scalar_type() == torch::kFloat64,
              "bias_activation: x must be float32 or float64, got ", x.scalar_type());
  const int64_t wrapped = dim < 0 ? dim + x.dim() : dim;
  TORCH_CHECK(wrapped >= 0 && wrapped < x.dim(), "bias_activation: no dimension ", dim,
              " in a tensor ", x.sizes());
  if (bias.defined()) {
    TORCH_CHECK(bias.dim() == 1 && bias.size(0) == x.size(wrapped) && bias.is_contiguous() &&
                    bias.scalar_type() == x.scalar_type(),
                "bias_activation: bias ", bias.sizes(), " ", bias.scalar_type(),
                " does not fit dimension ", wrapped, " of x ", x.sizes(), " ", x.scalar_type());
  }
  return wrapped;
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BiasActivation : torch::autograd::Function<BiasActivation> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const std::optional<torch::Tensor>& bias, Activation activation,
                               int64_t dim) {
    const bool needs_grad = x.requires_grad() || (bias && bias->requires_grad());
    torch::Tensor derivative = x.clone();
    torch::Tensor y =
        call_forward(derivative, bias, static_cast<int64_t>(activation), dim, needs_grad);
    ctx->saved_data["dim"] = dim;
    ctx->saved_data["bias_size"] = bias ? bias->size(0) : -1;
    if (needs_grad) ctx->save_for_backward({derivative});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const torch::Tensor derivative = ctx->get_saved_variables()[0];
    const int64_t bias_size = ctx->saved_data["bias_size"].toInt();
    torch::Tensor grad = grads[0].clone(at::MemoryFormat::Contiguous);
    torch::Tensor bias_grad;
    if (bias_size >= 0 && ctx->needs_input_grad(1)) {
      bias_grad = torch::zeros({bias_size}, grad.options());
    }
    bias_activation_backward(grad, derivative, bias_grad, ctx->saved_data["dim"].toInt());
    return {grad, bias_grad, torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor bias_activation(const torch::Tensor& x, const torch::Tensor& bias,
                              Activation activation, int64_t dim) {
  return BiasActivation::apply(x, optional_of(bias), activation, checked_dim(x, bias, dim));
}

torch::Tensor bias_activation_forward(torch::Tensor x, const torch::Tensor& bias,
                                      Activation activation, int64_t dim, bool keep_derivative) {
  return call_forward(x, optional_of(bias), static_cast<int64_t>(activation),
                      checked_dim(x, bias, dim), keep_derivative);
}

void bias_activation_backward(torch::Tensor grad, const torch::Tensor& derivative,
                              torch::Tensor bias_grad, int64_t dim) {
  const int64_t wrapped = checked_dim(grad, bias_grad, dim);
  TORCH_CHECK(derivative.sizes() == grad.sizes() && derivative.is_contiguous() &&
                  derivative.scalar_type() == grad.scalar_type(),
              "bias_activation: derivative ", derivative.sizes(), " does not fit the gradient ",
              grad.sizes());
  call_backward(grad, derivative, optional_of(bias_grad), wrapped);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "bias_activation_forward(Tensor(a!) x, Tensor? bias, int activation, int dim, "
      "bool keep_derivative) -> Tensor");
  m.def(
      "bias_activation_backward(Tensor(a!) grad, Tensor derivative, Tensor(b!)? bias_grad, "
      "int dim) -> ()");
}

}  // namespace shoal
