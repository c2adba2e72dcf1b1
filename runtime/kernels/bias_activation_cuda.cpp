#include "runtime/kernels/bias_activation_cuda.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <optional>
#include <tuple>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/real_types.h"

namespace shoal {
namespace {

void forward_cuda(torch::Tensor& y, const std::optional<torch::Tensor>& derivative,
                  const torch::Tensor& x, const std::optional<torch::Tensor>& bias,
                  int64_t activation) {
  if (x.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(x.device());
  for_real_type(x, "bias_activation", [&]<class Real, class Sum>(Real, Sum) {
    const ActivationMatrix<Real> matrix{
        const_data<Real>(x),    const_data_or_null<Real>(bias),
        data<Real>(y),          derivative ? data<Real>(*derivative) : nullptr,
        x.numel() / x.size(-1), x.size(-1)};
    launch_bias_activation(static_cast<Activation>(activation), matrix, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

std::tuple<torch::Tensor, torch::Tensor> backward_cuda(const torch::Tensor& grad,
                                                       const torch::Tensor& derivative,
                                                       bool has_bias) {
  const torch::Tensor x_grad = grad * derivative;
  if (!has_bias) return {x_grad, torch::Tensor()};
  // One dimension more, so that the sum of a vector is no view of it.
  return {x_grad, x_grad.unsqueeze(0).sum_to_size({grad.size(-1)})};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("bias_activation_forward", forward_cuda);
  m.impl("bias_activation_backward", backward_cuda);
}

}  // namespace shoal
