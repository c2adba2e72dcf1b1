#include "runtime/kernels/bias_activation.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "runtime/device/operator.h"

namespace shoal {
namespace {

using MaybeTensor = std::optional<torch::Tensor>;

/// `biased.dim` is not negative.
void call_forward(torch::Tensor& y, const torch::Tensor& derivative, const torch::Tensor& x,
                  const BiasedActivation& biased) {
  static const Operator<void(torch::Tensor&, const MaybeTensor&, const torch::Tensor&,
                             const MaybeTensor&, int64_t, int64_t)>
      op("shoal::bias_activation_forward");
  op(y, optional_of(derivative), x, optional_of(biased.bias),
     static_cast<int64_t>(biased.activation), biased.dim);
}

void call_backward(torch::Tensor& grad, const torch::Tensor& derivative,
                   const MaybeTensor& bias_grad, int64_t dim) {
  static const Operator<void(torch::Tensor&, const torch::Tensor&, const MaybeTensor&, int64_t)> op(
      "shoal::bias_activation_backward");
  op(grad, derivative, bias_grad, dim);
}

int64_t checked_dim(const torch::Tensor& x, const torch::Tensor& bias, int64_t dim) {
  TORCH_CHECK(x.is_contiguous(), "bias_activation: x must be contiguous");
  TORCH_CHECK(x.scalar_type() == torch::kFloat32 || x.scalar_type() == torch::kFloat64 ||
                  x.scalar_type() == torch::kBFloat16,
              "bias_activation: x must be float32, float64 or bfloat16, got ", x.scalar_type());
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
                               const MaybeTensor& bias, Activation activation, int64_t dim) {
    torch::Tensor y = torch::empty_like(x);
    const torch::Tensor derivative = torch::empty_like(x);
    call_forward(y, derivative, x, {bias.value_or(torch::Tensor()), activation, dim});
    ctx->saved_data["dim"] = dim;
    ctx->saved_data["bias_size"] = bias ? bias->size(0) : -1;
    ctx->save_for_backward({derivative});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
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
  const int64_t wrapped = checked_dim(x, bias, dim);
  const bool needs_grad =
      at::GradMode::is_enabled() && (x.requires_grad() || (bias.defined() && bias.requires_grad()));
  if (needs_grad) return BiasActivation::apply(x, optional_of(bias), activation, wrapped);
  torch::Tensor y = torch::empty_like(x);
  call_forward(y, {}, x, {bias, activation, wrapped});
  return y;
}

void bias_activation_out(torch::Tensor y, torch::Tensor derivative, const torch::Tensor& x,
                         const BiasedActivation& biased) {
  const int64_t dim = checked_dim(x, biased.bias, biased.dim);
  for (const torch::Tensor& out : {y, derivative}) {
    TORCH_CHECK(!out.defined() || (out.sizes() == x.sizes() && out.is_contiguous() &&
                                   out.scalar_type() == x.scalar_type()),
                "bias_activation: cannot write ", x.sizes(), " into ", out.sizes());
  }
  call_forward(y, derivative, x, {biased.bias, biased.activation, dim});
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
      "bias_activation_forward(Tensor(a!) y, Tensor(b!)? derivative, Tensor x, Tensor? bias, "
      "int activation, int dim) -> ()");
  m.def(
      "bias_activation_backward(Tensor(a!) grad, Tensor derivative, Tensor(b!)? bias_grad, "
      "int dim) -> ()");
}

}  // namespace shoal
