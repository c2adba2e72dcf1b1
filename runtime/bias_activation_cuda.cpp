#include "runtime/bias_activation_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>
#include <torch/types.h>

#include <optional>
#include <vector>

namespace shoal {
namespace {

void forward_cuda(torch::Tensor& y, const std::optional<torch::Tensor>& derivative,
                  const torch::Tensor& x, const std::optional<torch::Tensor>& bias,
                  int64_t activation, int64_t dim) {
  const c10::cuda::CUDAGuard guard(x.device());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "bias_activation_forward", [&] {
    const ActivationElements<scalar_t> elements{
        x.const_data_ptr<scalar_t>(),
        bias ? bias->const_data_ptr<scalar_t>() : nullptr,
        y.data_ptr<scalar_t>(),
        derivative ? derivative->data_ptr<scalar_t>() : nullptr,
        x.numel(),
        x.size(dim),
        x.stride(dim)};
    launch_bias_activation(static_cast<Activation>(activation), elements,
                           c10::cuda::getCurrentCUDAStream().stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void backward_cuda(torch::Tensor& grad, const torch::Tensor& derivative,
                   const std::optional<torch::Tensor>& bias_grad, int64_t dim) {
  grad.mul_(derivative);
  if (!bias_grad) return;
  std::vector<int64_t> summed;
  for (int64_t d = 0; d < grad.dim(); ++d) {
    if (d != dim) summed.push_back(d);
  }
  bias_grad->add_(summed.empty() ? grad : grad.sum(summed));
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("bias_activation_forward", forward_cuda);
  m.impl("bias_activation_backward", backward_cuda);
}

}  // namespace shoal
