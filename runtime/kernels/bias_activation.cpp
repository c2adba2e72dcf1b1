#include "runtime/kernels/bias_activation.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "runtime/device/operator.h"

namespace shoal {
namespace {

using MaybeTensor = std::optional<torch::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check(const torch::Tensor& x, const torch::Tensor& bias) {
  TORCH_CHECK(x.is_contiguous() && x.dim() > 0, "bias_activation: x must be contiguous, got ",
              x.sizes(), " with strides ", x.strides());
  TORCH_CHECK(x.scalar_type() == torch::kFloat32 || x.scalar_type() == torch::kFloat64 ||
                  x.scalar_type() == torch::kBFloat16,
              "bias_activation: x must be float32, float64 or bfloat16, got ", x.scalar_type());
  if (!bias.defined()) return;
  TORCH_CHECK(bias.sizes() == at::IntArrayRef{x.size(-1)} && bias.is_contiguous() &&
                  bias.scalar_type() == x.scalar_type(),
              "bias_activation: bias ", bias.sizes(), " ", bias.scalar_type(),
              " does not fit the last dimension of x ", x.sizes(), " ", x.scalar_type());
}

/// Writes the activation to `y` and, unless it is undefined, its derivative to `derivative`.
void call_forward(torch::Tensor y, const torch::Tensor& derivative, const torch::Tensor& x,
                  const MaybeTensor& bias, Activation activation) {
  static const Operator<void(torch::Tensor&, const MaybeTensor&, const torch::Tensor&,
                             const MaybeTensor&, int64_t)>
      op("shoal::bias_activation_forward");
  op(y, optional_of(derivative), x, bias, static_cast<int64_t>(activation));
}

struct BiasActivation : torch::autograd::Function<BiasActivation> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const MaybeTensor& bias, Activation activation) {
    const torch::Tensor y = torch::empty_like(x), derivative = torch::empty_like(x);
    call_forward(y, derivative, x, bias, activation);
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->save_for_backward({derivative});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const torch::Tensor derivative = ctx->get_saved_variables()[0];
    const bool has_bias = ctx->saved_data["has_bias"].toBool();
    if (!has_bias || !ctx->needs_input_grad(1)) return {grads[0] * derivative, {}, {}};
    using Backward =
        std::tuple<torch::Tensor, torch::Tensor>(const torch::Tensor&, const torch::Tensor&);
    static const Operator<Backward> op("shoal::bias_activation_backward");
    const auto [x_grad, bias_grad] = op(grads[0].contiguous(), derivative);
    return {x_grad, bias_grad, {}};
  }
};

}  // namespace

torch::Tensor bias_activation(const torch::Tensor& x, const torch::Tensor& bias,
                              Activation activation) {
  check(x, bias);
  const bool needs_grad =
      at::GradMode::is_enabled() && (x.requires_grad() || (bias.defined() && bias.requires_grad()));
  if (needs_grad) return BiasActivation::apply(x, optional_of(bias), activation);
  const torch::Tensor y = torch::empty_like(x);
  call_forward(y, {}, x, optional_of(bias), activation);
  return y;
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "bias_activation_forward(Tensor(a!) y, Tensor(b!)? derivative, Tensor x, Tensor? bias, "
      "int activation) -> ()");
  m.def("bias_activation_backward(Tensor grad, Tensor derivative) -> (Tensor, Tensor)");
}

}  // namespace shoal
