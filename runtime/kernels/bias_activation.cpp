#include "runtime/kernels/bias_activation.h"

#include <torch/library.h>

#include <tuple>

#include "runtime/device/autograd_function.h"
#include "runtime/device/operator.h"

// Tensors are contiguous. backward: gradients of x and, with `has_bias`, of the bias.
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "bias_activation_forward(Tensor(a!) y, Tensor(b!)? derivative, Tensor x, Tensor? bias, "
      "int activation) -> ()");
  m.def(
      "bias_activation_backward(Tensor grad, Tensor derivative, bool has_bias) -> (Tensor, "
      "Tensor)");
}

namespace shoal {
namespace {

torch::Tensor activate(const torch::Tensor& x, const MaybeTensor& bias, Activation activation,
                       const MaybeTensor& derivative) {
  static const Operator<void(torch::Tensor&, const MaybeTensor&, const torch::Tensor&,
                             const MaybeTensor&, int64_t)>
      op("shoal::bias_activation_forward");
  torch::Tensor y = torch::empty_like(x);
  op(y, derivative, x, bias, static_cast<int64_t>(activation));
  return y;
}

struct BiasActivation : torch::autograd::Function<BiasActivation> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const MaybeTensor& bias, Activation activation) {
    const torch::Tensor derivative = torch::empty_like(x);
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->save_for_backward({derivative});
    return activate(x, bias, activation, derivative);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    static const Operator<std::tuple<torch::Tensor, torch::Tensor>(const torch::Tensor&,
                                                                   const torch::Tensor&, bool)>
        op("shoal::bias_activation_backward");
    refuse_second_derivatives();
    const bool sums = ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(1);
    const auto [x_grad, bias_grad] = op(grads[0].contiguous(), ctx->get_saved_variables()[0], sums);
    return {x_grad, bias_grad, torch::Tensor()};
  }
};

}  // namespace

torch::Tensor bias_activation(const torch::Tensor& x, const torch::Tensor& bias,
                              Activation activation) {
  TORCH_CHECK(x.is_contiguous() && x.dim() > 0,
              "bias_activation: x must be contiguous and no scalar");
  TORCH_CHECK(x.scalar_type() == torch::kFloat32 || x.scalar_type() == torch::kFloat64 ||
                  x.scalar_type() == torch::kBFloat16,
              "bias_activation: x must be float32, float64 or bfloat16, got ", x.scalar_type());
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == x.size(-1) &&
                                  bias.is_contiguous() && bias.scalar_type() == x.scalar_type()),
              "bias_activation: bias ", bias.sizes(), " ", bias.scalar_type(), " does not fit x ",
              x.sizes(), " ", x.scalar_type());
  const bool needs_grad =
      at::GradMode::is_enabled() && (x.requires_grad() || (bias.defined() && bias.requires_grad()));
  if (needs_grad) return BiasActivation::apply(x, optional_of(bias), activation);
  return activate(x, optional_of(bias), activation, std::nullopt);
}

}  // namespace shoal
