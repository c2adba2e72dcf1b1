#include "moe/kernels/logit_functions_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include "runtime/device/current_stream_cuda.h"

// R rows  C columns
namespace shoal {
namespace {

using logit_functions_cuda::Function;
using torch::Tensor;

Tensor launched(Function function, const Tensor& in_RC, const Tensor& gate_RC, Tensor out) {
  const c10::cuda::CUDAGuard guard(in_RC.device());
  AT_DISPATCH_FLOATING_TYPES(in_RC.scalar_type(), "logit_function", [&] {
    const logit_functions_cuda::Rows<scalar_t> rows{
        in_RC.const_data_ptr<scalar_t>(), gate_RC.const_data_ptr<scalar_t>(),
        out.mutable_data_ptr<scalar_t>(), in_RC.size(0), in_RC.size(1)};
    logit_functions_cuda::launch(function, rows, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

template <Function function>
Tensor of_elements(const Tensor& logits) {
  const Tensor in_RC = logits.reshape({1, -1});
  return launched(function, in_RC, in_RC, torch::empty_like(logits));
}

Tensor row_logsumexp_cuda(const Tensor& x_RC) {
  return launched(Function::kLogsumexp, x_RC, x_RC, torch::empty({x_RC.size(0)}, x_RC.options()));
}

Tensor row_softmax_cuda(const Tensor& logits_RC) {
  return launched(Function::kSoftmax, logits_RC, logits_RC, torch::empty_like(logits_RC));
}

Tensor row_softmax_backward_cuda(const Tensor& grad_RC, const Tensor& gate_RC) {
  return launched(Function::kSoftmaxBackward, grad_RC, gate_RC, torch::empty_like(gate_RC));
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("logit_sigmoid", of_elements<Function::kSigmoid>);
  m.impl("logit_softplus", of_elements<Function::kSoftplus>);
  m.impl("row_logsumexp", row_logsumexp_cuda);
  m.impl("row_softmax", row_softmax_cuda);
  m.impl("row_softmax_backward", row_softmax_backward_cuda);
}

}  // namespace shoal
