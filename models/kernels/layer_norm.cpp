#include "models/kernels/layer_norm.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "runtime/device/operator.h"

namespace shoal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors3 = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;

using LayerNormForward = Tensors3(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&,
                                  bool);
using LayerNormBackward = Tensors3(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&,
                                   const torch::Tensor&, const torch::Tensor&, bool);

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& bias,
                               bool transposed) {
    static const Operator<LayerNormForward> op("shoal::layer_norm_forward");
    auto [y, mean, rstd] = op(x, weight, bias, transposed);
    ctx->save_for_backward({x, weight, mean, rstd});
    ctx->saved_data["transposed"] = transposed;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<LayerNormBackward> op("shoal::layer_norm_backward");
    const variable_list saved = ctx->get_saved_variables();
    auto [x, weight, bias] = op(grads[0].contiguous(), saved[0], saved[1], saved[2], saved[3],
                                ctx->saved_data["transposed"].toBool());
    return {x, weight, bias, torch::Tensor()};
  }
};

void check(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  TORCH_CHECK(x.dim() >= 1 && x.is_contiguous(), "layer_norm: x must be contiguous, got ",
              x.sizes(), " with strides ", x.strides());
  const int64_t width = x.size(-1);
  TORCH_CHECK(weight.sizes() == at::IntArrayRef{width} && bias.sizes() == weight.sizes(),
              "layer_norm: weight ", weight.sizes(), " and bias ", bias.sizes(),
              " do not fit the last dimension of x ", x.sizes());
  const bool is_narrow = x.scalar_type() == torch::kBFloat16;
  const torch::Dtype dtype = is_narrow ? torch::kFloat32 : x.scalar_type();
  TORCH_CHECK(weight.scalar_type() == dtype && bias.scalar_type() == dtype, "layer_norm: x is ",
              x.scalar_type(), ", weight and bias must be ", dtype, ", got ", weight.scalar_type(),
              " and ", bias.scalar_type());
}

}  // namespace

torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias) {
  check(x, weight, bias);
  return LayerNormFunction::apply(x, weight, bias, false);
}

torch::Tensor layer_norm_transposed(const torch::Tensor& x_BSC, const torch::Tensor& weight,
                                    const torch::Tensor& bias) {
  TORCH_CHECK(x_BSC.dim() == 3, "layer_norm_transposed expects [B, S, C], got ", x_BSC.sizes());
  check(x_BSC, weight, bias);
  return LayerNormFunction::apply(x_BSC, weight, bias, true);
}

LayerNormImpl::LayerNormImpl(int64_t width, const torch::TensorOptions& options) {
  weight = add_parameter("weight", {width}, options, Init::ones());
  bias = add_parameter("bias", {width}, options, Init::zeros());
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "layer_norm_forward(Tensor x, Tensor weight, Tensor bias, bool transposed) "
      "-> (Tensor, Tensor, Tensor)");
  m.def(
      "layer_norm_backward(Tensor grad, Tensor x, Tensor weight, Tensor mean, Tensor rstd, "
      "bool transposed) -> (Tensor, Tensor, Tensor)");
}

}  // namespace shoal
