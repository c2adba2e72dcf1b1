#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <tuple>

#include "models/kernels/layer_norm.h"

// B images  S tokens  C width
//
// LibTorch's kernels take x and the parameters in one dtype: the parameters', so that bfloat16
// costs a float32 copy on the way, and what is kept for the backward pass stays bfloat16.
namespace shoal {
namespace {

using torch::Tensor;
using Tensors3 = std::tuple<Tensor, Tensor, Tensor>;

Tensors3 forward_cuda(const Tensor& x, const Tensor& weight, const Tensor& bias, bool transposed) {
  const c10::cuda::CUDAGuard guard(x.device());
  auto [y, mean, rstd] =
      at::native_layer_norm(x.to(weight.scalar_type()), {x.size(-1)}, weight, bias, kLayerNormEps);
  if (transposed) y = y.transpose(1, 2).contiguous();
  return {y.to(x.scalar_type()), mean, rstd};
}

Tensors3 backward_cuda(const Tensor& grad, const Tensor& x, const Tensor& weight,
                       const Tensor& mean, const Tensor& rstd, bool transposed) {
  const c10::cuda::CUDAGuard guard(x.device());
  const torch::Dtype dtype = weight.scalar_type();
  const Tensor y_grad = transposed ? grad.transpose(1, 2).contiguous() : grad;
  // The bias is only asked for its dtype.
  auto [x_grad, weight_grad, bias_grad] =
      at::native_layer_norm_backward(y_grad.to(dtype), x.to(dtype), {x.size(-1)}, mean, rstd,
                                     weight, /*bias=*/weight, {true, true, true});
  return {x_grad.to(x.scalar_type()), weight_grad, bias_grad};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("layer_norm_forward", forward_cuda);
  m.impl("layer_norm_backward", backward_cuda);
}

}  // namespace shoal
