#include "models/kernels/layer_norm_cuda.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <optional>
#include <tuple>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/real_types.h"

// N rows  C width  R runs
namespace shoal {
namespace {

using torch::Tensor;
using Tensors3 = std::tuple<Tensor, Tensor, Tensor>;

template <class Real, class Sum = Wide<Real>>
layer_norm_cuda::Norm<Real> norm_of(const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                                    bool is_centred) {
  return {const_data<Sum>(weight), data<Sum>(mean), data<Sum>(rstd), mean.numel(),
          weight.numel(),          is_centred};
}

Tensors3 forward_cuda(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                      bool is_centred, double eps) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t rows = x.numel() == 0 ? 0 : x.numel() / x.size(-1);
  const Tensor y = torch::empty_like(x), mean = torch::empty({rows}, weight.options());
  const Tensor rstd = torch::empty_like(mean);
  for_real_type(x, "layer_norm", [&]<class Real, class Sum>(Real, Sum) {
    layer_norm_cuda::launch_forward<Real>(
        norm_of<Real>(weight, mean, rstd, is_centred),
        {const_data_or_null<Sum>(bias), eps, const_data<Real>(x), data<Real>(y)}, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, mean, rstd};
}

Tensors3 backward_cuda(const Tensor& grad, const std::optional<Tensor>& residual,
                       at::TensorList saved, bool is_centred) {
  const Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &rstd = saved[3];
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t runs = (mean.numel() + layer_norm_cuda::kRunRows - 1) / layer_norm_cuda::kRunRows;
  const Tensor dx = torch::empty_like(x);
  const Tensor sum_R2C = torch::empty({runs, 2, weight.numel()}, weight.options());
  for_real_type(x, "layer_norm", [&]<class Real, class Sum>(Real, Sum) {
    layer_norm_cuda::launch_backward<Real>(
        norm_of<Real>(weight, mean, rstd, is_centred),
        {const_data<Real>(x), const_data<Real>(grad), const_data_or_null<Real>(residual),
         data<Real>(dx), data<Sum>(sum_R2C)},
        current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  // Gradients of parameters go to work on other streams each on its own: in memory of their own.
  return {dx, sum_R2C.select(1, 0).sum(0), is_centred ? sum_R2C.select(1, 1).sum(0) : Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("layer_norm_forward", forward_cuda);
  m.impl("layer_norm_backward", backward_cuda);
}

}  // namespace shoal
