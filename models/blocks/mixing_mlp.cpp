#include "models/blocks/mixing_mlp.h"

#include <ATen/ops/bmm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "models/kernels/token_linear.h"
#include "runtime/device/operator.h"

// B images  S tokens  C width  H hidden  N = B S rows
namespace shoal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// weights: norm weight, norm bias, which may be wider than x, fc1 weight, fc1 bias, fc2 weight,
/// fc2 bias.
/// -> y, the norm's mean [N] and rstd [N], the activation after fc1 and its derivative, [B, H, C]
/// over tokens and [N, H] over channels; the last two are empty unless `keep`.
using MixForward = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor,
                              torch::Tensor>(const torch::Tensor& x, at::TensorList weights,
                                             bool over_tokens, int64_t activation, bool keep);

/// saved: x, mean, rstd, activation, derivative. -> gradients of x and of the weights.
using MixBackward = std::vector<torch::Tensor>(const torch::Tensor& grad, at::TensorList saved,
                                               at::TensorList weights, bool over_tokens);

struct MixingFunction : torch::autograd::Function<MixingFunction> {
  /// inputs: x, then the weights.
  static torch::Tensor forward(AutogradContext* ctx, at::TensorList inputs, bool over_tokens,
                               Activation activation, bool keep) {
    static const Operator<MixForward> op("shoal::mixing_mlp_forward");
    auto [y, mean, rstd, hidden, derivative] =
        op(inputs[0], inputs.slice(1), over_tokens, static_cast<int64_t>(activation), keep);
    variable_list saved{inputs[0], mean, rstd, hidden, derivative};
    saved.insert(saved.end(), inputs.begin() + 1, inputs.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["over_tokens"] = over_tokens;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    static const Operator<MixBackward> op("shoal::mixing_mlp_backward");
    const variable_list saved = ctx->get_saved_variables();
    variable_list result =
        op(grads[0].contiguous(), at::TensorList(saved).slice(0, 5), at::TensorList(saved).slice(5),
           ctx->saved_data["over_tokens"].toBool());
    result.resize(10);  // no gradient for the three plain arguments
    return result;
  }
};

// On the CPU there are no tiles of bfloat16: its products are LibTorch's, which are faster than
// float32 ones.
torch::Tensor composed(const torch::Tensor& x_BSC, const LayerNorm& norm, const Mlp& mlp,
                       bool over_tokens) {
  const torch::Tensor normed_BSC = norm->forward(x_BSC);
  if (!over_tokens) return x_BSC + mlp->forward(normed_BSC);
  const torch::Tensor weight_HS = mlp->fc1->weight.to(x_BSC.scalar_type());
  const torch::Tensor hidden_BHC = at::bmm(for_images(weight_HS, x_BSC.size(0)), normed_BSC);
  const torch::Tensor activation_BHC = bias_activation(
      hidden_BHC, mlp->fc1->bias.to(x_BSC.scalar_type()), activation_of(mlp->gelu()), 1);
  return x_BSC + token_linear(activation_BHC, mlp->fc2->weight, mlp->fc2->bias);
}

torch::Tensor mix(const torch::Tensor& x_BSC, const LayerNorm& norm, const Mlp& mlp,
                  bool over_tokens) {
  TORCH_CHECK(x_BSC.dim() == 3 && x_BSC.is_contiguous(),
              "mixing expects contiguous [B, S, C], got ", x_BSC.sizes());
  const int64_t mixed = x_BSC.size(over_tokens ? 1 : 2), width = mlp->fc1->weight.size(1);
  TORCH_CHECK(mixed == width && x_BSC.size(2) == norm->weight.size(0), "an MLP of width ", width,
              " over ", over_tokens ? "tokens" : "channels", " and a norm of width ",
              norm->weight.size(0), " do not fit x ", x_BSC.sizes());
  const torch::Dtype dtype = x_BSC.scalar_type();
  if (x_BSC.is_cpu() && dtype == torch::kBFloat16) return composed(x_BSC, norm, mlp, over_tokens);
  variable_list inputs{x_BSC, norm->weight, norm->bias};
  for (const torch::Tensor& weight :
       {mlp->fc1->weight, mlp->fc1->bias, mlp->fc2->weight, mlp->fc2->bias}) {
    inputs.push_back(weight.to(dtype));
  }
  return MixingFunction::apply(at::TensorList(inputs), over_tokens, activation_of(mlp->gelu()),
                               at::GradMode::is_enabled());
}

}  // namespace

torch::Tensor mix_tokens(const torch::Tensor& x_BSC, const LayerNorm& norm, const Mlp& mlp) {
  return mix(x_BSC, norm, mlp, true);
}

torch::Tensor mix_channels(const torch::Tensor& x_BSC, const LayerNorm& norm, const Mlp& mlp) {
  return mix(x_BSC, norm, mlp, false);
}

TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "mixing_mlp_forward(Tensor x, Tensor[] weights, bool over_tokens, int activation, "
      "bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "mixing_mlp_backward(Tensor grad, Tensor[] saved, Tensor[] weights, bool over_tokens) "
      "-> Tensor[]");
}

}  // namespace shoal
