#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <tuple>
#include <vector>

#include "models/kernels/layer_norm.h"
#include "models/kernels/token_linear.h"
#include "runtime/kernels/bias_activation.h"

// B images  S tokens  C width  H hidden  N = B S rows
//
// The hidden layer is [B, H, C] where tokens are mixed, W [H, S] times n [S, C] for each image, and
// [N, H] where channels are mixed, n [N, C] times Wᵀ [C, H].
namespace shoal {
namespace {

using torch::Tensor;

struct Weights {
  Tensor norm, norm_bias, fc1, fc1_bias, fc2, fc2_bias;

  explicit Weights(at::TensorList list)
      : norm(list[0]),
        norm_bias(list[1]),
        fc1(list[2]),
        fc1_bias(list[3]),
        fc2(list[4]),
        fc2_bias(list[5]) {}
};

/// [B, S, C] -> [N, C].
Tensor rows_of(const Tensor& x) { return x.reshape({x.size(0) * x.size(1), x.size(2)}); }

/// In the dtype of the norm's parameters, its result in that of x.
std::tuple<Tensor, Tensor, Tensor> normalise(const Tensor& x, const Weights& weights) {
  auto [y, mean, rstd] = at::native_layer_norm(x.to(weights.norm.scalar_type()), {x.size(2)},
                                               weights.norm, weights.norm_bias, kLayerNormEps);
  return {y.to(x.scalar_type()), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward_cuda(const Tensor& x,
                                                                at::TensorList list,
                                                                bool over_tokens,
                                                                int64_t activation, bool keep) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Weights weights(list);
  const auto [normed, mean, rstd] = normalise(x, weights);
  const Tensor before = over_tokens ? at::bmm(for_images(weights.fc1, x.size(0)), normed)
                                    : at::mm(rows_of(normed), weights.fc1.t());
  const Tensor hidden = torch::empty_like(before);
  bias_activation_out(hidden, keep ? before : Tensor(), before,
                      {weights.fc1_bias, static_cast<Activation>(activation), 1});
  Tensor y = x + (over_tokens ? weights.fc2_bias.unsqueeze(1) : weights.fc2_bias);
  if (over_tokens) {
    y.baddbmm_(for_images(weights.fc2, x.size(0)), hidden);
  } else {
    y.view({hidden.size(0), x.size(2)}).addmm_(hidden, weights.fc2.t());
  }
  const Tensor none = torch::empty({0}, x.options());
  return {y, mean, rstd, keep ? hidden : none, keep ? before : none};
}

/// Gradients of the two layers, and of what goes into the first.
struct LayerGradients {
  Tensor normed, fc1, fc1_bias, fc2, fc2_bias;
};

struct Saved {
  Tensor x, mean, rstd, hidden, derivative;
};

LayerGradients over_tokens_backward(const Tensor& grad, const Saved& saved, const Weights& weights,
                                    const Tensor& normed) {
  LayerGradients result;
  result.fc2 = at::bmm(grad, saved.hidden.transpose(1, 2)).sum(0);
  result.fc2_bias = grad.sum(at::IntArrayRef({0, 2}));
  result.fc1_bias = torch::zeros_like(weights.fc1_bias);
  const Tensor hidden_grad = at::bmm(for_images(weights.fc2.t(), grad.size(0)), grad);
  bias_activation_backward(hidden_grad, saved.derivative, result.fc1_bias, 1);
  result.fc1 = at::bmm(hidden_grad, normed.transpose(1, 2)).sum(0);
  result.normed = at::bmm(for_images(weights.fc1.t(), grad.size(0)), hidden_grad);
  return result;
}

LayerGradients over_channels_backward(const Tensor& grad, const Saved& saved,
                                      const Weights& weights, const Tensor& normed) {
  LayerGradients result;
  const Tensor grad_NC = rows_of(grad);
  result.fc2 = at::mm(grad_NC.t(), saved.hidden);
  result.fc2_bias = grad_NC.sum(0);
  result.fc1_bias = torch::zeros_like(weights.fc1_bias);
  const Tensor hidden_grad = at::mm(grad_NC, weights.fc2);
  bias_activation_backward(hidden_grad, saved.derivative, result.fc1_bias, 1);
  result.fc1 = at::mm(hidden_grad.t(), rows_of(normed));
  result.normed = at::mm(hidden_grad, weights.fc1).view(normed.sizes());
  return result;
}

// The norm is made once more: it is cheaper than to keep it.
std::vector<Tensor> backward_cuda(const Tensor& grad, at::TensorList list,
                                  at::TensorList weight_list, bool over_tokens) {
  const c10::cuda::CUDAGuard guard(grad.device());
  const Saved saved{list[0], list[1], list[2], list[3], list[4]};
  const Weights weights(weight_list);
  const Tensor normed = std::get<0>(normalise(saved.x, weights));
  const LayerGradients layers = over_tokens ? over_tokens_backward(grad, saved, weights, normed)
                                            : over_channels_backward(grad, saved, weights, normed);
  const torch::Dtype dtype = weights.norm.scalar_type();
  auto [x_grad, norm_grad, norm_bias_grad] = at::native_layer_norm_backward(
      layers.normed.to(dtype), saved.x.to(dtype), {saved.x.size(2)}, saved.mean, saved.rstd,
      weights.norm, weights.norm_bias, {true, true, true});
  x_grad.add_(grad);
  return {x_grad.to(grad.scalar_type()),
          norm_grad,
          norm_bias_grad,
          layers.fc1,
          layers.fc1_bias,
          layers.fc2,
          layers.fc2_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("mixing_mlp_forward", forward_cuda);
  m.impl("mixing_mlp_backward", backward_cuda);
}

}  // namespace shoal
