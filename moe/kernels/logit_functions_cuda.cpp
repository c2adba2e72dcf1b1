#include "moe/kernels/logit_functions_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include "runtime/device/current_stream_cuda.h"

namespace shoal {
namespace {

/// Calls `launch` with a matrix and what is to be made of it.
template <class Launch>
torch::Tensor launched(const torch::Tensor& in_RC, torch::Tensor out, const Launch& launch) {
  const c10::cuda::CUDAGuard guard(in_RC.device());
  AT_DISPATCH_FLOATING_TYPES(in_RC.scalar_type(), "logit_function", [&] {
    launch(logit_functions_cuda::Values<scalar_t>{in_RC.const_data_ptr<scalar_t>(),
                                                  out.mutable_data_ptr<scalar_t>(), in_RC.size(0),
                                                  in_RC.size(1)});
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

torch::Tensor logit_sigmoid_cuda(const torch::Tensor& logits) {
  return launched(logits.reshape({1, -1}), torch::empty_like(logits), [](const auto& values) {
    logit_functions_cuda::launch_sigmoid(values, current_stream());
  });
}

torch::Tensor logit_softplus_cuda(const torch::Tensor& logits) {
  return launched(logits.reshape({1, -1}), torch::empty_like(logits), [](const auto& values) {
    logit_functions_cuda::launch_softplus(values, current_stream());
  });
}

torch::Tensor row_logsumexp_cuda(const torch::Tensor& x_RC) {
  return launched(x_RC, torch::empty({x_RC.size(0)}, x_RC.options()), [](const auto& values) {
    logit_functions_cuda::launch_logsumexp(values, current_stream());
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("logit_sigmoid", logit_sigmoid_cuda);
  m.impl("logit_softplus", logit_softplus_cuda);
  m.impl("row_logsumexp", row_logsumexp_cuda);
}

}  // namespace shoal
