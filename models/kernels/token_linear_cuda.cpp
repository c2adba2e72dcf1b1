#include <ATen/ops/bmm.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <tuple>

#include "models/kernels/token_linear.h"

// B images  S tokens  P new tokens  C width
namespace shoal {
namespace {

using torch::Tensor;

Tensor forward_cuda(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const c10::cuda::CUDAGuard guard(x.device());
  return at::bmm(for_images(weight, x.size(0)), x).add_(bias.unsqueeze(1));
}

// One product an image, then a sum over images: less to move than images side by side in one
// product, which transposes both factors.
std::tuple<Tensor, Tensor, Tensor> backward_cuda(const Tensor& grad, const Tensor& x,
                                                 const Tensor& weight) {
  const c10::cuda::CUDAGuard guard(x.device());
  return {at::bmm(for_images(weight.t(), x.size(0)), grad), at::bmm(grad, x.transpose(1, 2)).sum(0),
          grad.sum(at::IntArrayRef({0, 2}))};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("token_linear_forward", forward_cuda);
  m.impl("token_linear_backward", backward_cuda);
}

}  // namespace shoal
