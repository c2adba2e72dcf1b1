#include "moe/kernels/row_softmax_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include "runtime/device/current_stream_cuda.h"

// T tokens  U units
namespace shoal {
namespace {

torch::Tensor forward_cuda(const torch::Tensor& logits_TU) {
  const c10::cuda::CUDAGuard guard(logits_TU.device());
  torch::Tensor gate_TU = torch::empty_like(logits_TU);
  AT_DISPATCH_FLOATING_TYPES(logits_TU.scalar_type(), "row_softmax", [&] {
    const row_softmax_cuda::Rows<scalar_t> rows{logits_TU.const_data_ptr<scalar_t>(), nullptr,
                                                gate_TU.data_ptr<scalar_t>(), logits_TU.size(0),
                                                logits_TU.size(1)};
    row_softmax_cuda::launch_softmax(rows, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return gate_TU;
}

torch::Tensor backward_cuda(const torch::Tensor& grad_TU, const torch::Tensor& gate_TU) {
  const c10::cuda::CUDAGuard guard(gate_TU.device());
  torch::Tensor grad_logits_TU = torch::empty_like(gate_TU);
  AT_DISPATCH_FLOATING_TYPES(gate_TU.scalar_type(), "row_softmax_backward", [&] {
    const row_softmax_cuda::Rows<scalar_t> rows{
        grad_TU.const_data_ptr<scalar_t>(), gate_TU.const_data_ptr<scalar_t>(),
        grad_logits_TU.data_ptr<scalar_t>(), gate_TU.size(0), gate_TU.size(1)};
    row_softmax_cuda::launch_backward(rows, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grad_logits_TU;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("row_softmax", forward_cuda);
  m.impl("row_softmax_backward", backward_cuda);
}

}  // namespace shoal
