#include "runtime/kernels/bias_activation_cuda.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/real_types.h"

namespace shoal {
namespace {

/// x [outer, n, inner] as a matrix: [outer, n] with a bias a column if inner is 1, else
/// [outer * n, inner] with a bias a row.
template <class Real>
ActivationMatrix<Real> matrix_of(const torch::Tensor& x, const std::optional<torch::Tensor>& bias,
                                 int64_t dim) {
  const bool is_last = x.stride(dim) == 1;
  const int64_t columns = std::max<int64_t>(1, is_last ? x.size(dim) : x.stride(dim));
  return {const_data<Real>(x),
          bias ? const_data<Real>(*bias) : nullptr,
          nullptr,
          nullptr,
          x.numel() / columns,
          columns,
          x.size(dim),
          is_last && bias.has_value()};
}

void forward_cuda(torch::Tensor& y, const std::optional<torch::Tensor>& derivative,
                  const torch::Tensor& x, const std::optional<torch::Tensor>& bias,
                  int64_t activation, int64_t dim) {
  if (x.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(x.device());
  for_real_type(x, "bias_activation", [&]<class Real, class Sum>(Real, Sum) {
    ActivationMatrix<Real> matrix = matrix_of<Real>(x, bias, dim);
    matrix.y = data<Real>(y);
    if (derivative) matrix.derivative = data<Real>(*derivative);
    launch_bias_activation(static_cast<Activation>(activation), matrix, current_stream());
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
