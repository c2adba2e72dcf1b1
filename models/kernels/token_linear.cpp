#include "models/kernels/token_linear.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "runtime/device/operator.h"

namespace shoal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Forward = torch::Tensor(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&);
using Backward = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>(const torch::Tensor&,
                                                                         const torch::Tensor&,
                                                                         const torch::Tensor&);

struct TokenLinearFunction : torch::autograd::Function<TokenLinearFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& bias) {
    static const Operator<Forward> op("shoal::token_linear_forward");
    ctx->save_for_backward({x, weight});
    return op(x, weight.to(x.scalar_type()), bias.to(x.scalar_type()));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<Backward> op("shoal::token_linear_backward");
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1];
    auto [x_grad, weight_grad, bias_grad] =
        op(grads[0].contiguous(), x, weight.to(x.scalar_type()));
    const torch::Dtype dtype = weight.scalar_type();
    return {x_grad, weight_grad.to(dtype), bias_grad.to(dtype)};
  }
};

}  // namespace

torch::Tensor token_linear(const torch::Tensor& x_BSC, const torch::Tensor& weight,
                           const torch::Tensor& bias) {
  TORCH_CHECK(x_BSC.dim() == 3 && x_BSC.is_contiguous() && weight.dim() == 2 &&
                  weight.size(1) == x_BSC.size(1),
              "token_linear: weight ", weight.sizes(), " does not fit contiguous x [B, S, C] ",
              x_BSC.sizes());
  TORCH_CHECK(bias.sizes() == at::IntArrayRef{weight.size(0)}, "token_linear: bias ", bias.sizes(),
              " does not fit weight ", weight.sizes());
  return TokenLinearFunction::apply(x_BSC, weight, bias);
}

torch::Tensor token_linear(const torch::Tensor& x_BSC, const LinearImpl& layer) {
  if (const auto dense = layer.dense()) return token_linear(x_BSC, dense->weight, dense->bias);
  return layer.forward(x_BSC.transpose(1, 2).contiguous()).transpose(1, 2).contiguous();
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def("token_linear_forward(Tensor x, Tensor weight, Tensor bias) -> Tensor");
  m.def("token_linear_backward(Tensor grad, Tensor x, Tensor weight) -> (Tensor, Tensor, Tensor)");
}

}  // namespace shoal
