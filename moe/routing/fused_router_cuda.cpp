#include "moe/routing/fused_router_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <vector>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/real_types.h"

// T tokens  U units  K choices
namespace shoal {
namespace {

using torch::Tensor;

fused_router_cuda::Shape shape_of(const Tensor& score_TU, int64_t k, int64_t score,
                                  int64_t normalise) {
  return {score_TU.size(0), static_cast<int>(score_TU.size(1)), static_cast<int>(k),
          static_cast<RouterScore>(score), static_cast<Normalise>(normalise)};
}

std::vector<Tensor> router_forward_cuda(const Tensor& logits_TU, const MaybeTensor& bias_U,
                                        int64_t k, int64_t score, int64_t normalise) {
  const c10::cuda::CUDAGuard guard(logits_TU.device());
  const int64_t num_tokens = logits_TU.size(0), num_units = logits_TU.size(1);
  const torch::TensorOptions options = logits_TU.options();
  Tensor score_TU = torch::empty_like(logits_TU);
  Tensor choice_TK = torch::empty({num_tokens, k}, options.dtype(torch::kInt64));
  Tensor chosen_TK = torch::empty({num_tokens, k}, options);
  Tensor weight_TK = torch::empty({num_tokens, k}, options);
  Tensor count_U = torch::zeros({num_units}, options.dtype(torch::kInt64));
  AT_DISPATCH_FLOATING_TYPES(logits_TU.scalar_type(), "fused_router", [&] {
    const fused_router_cuda::Forward<scalar_t> job{
        logits_TU.const_data_ptr<scalar_t>(), const_data_or_null<scalar_t>(bias_U),
        score_TU.data_ptr<scalar_t>(),        choice_TK.data_ptr<int64_t>(),
        chosen_TK.data_ptr<scalar_t>(),       weight_TK.data_ptr<scalar_t>(),
        count_U.data_ptr<int64_t>()};
    fused_router_cuda::launch_forward(shape_of(logits_TU, k, score, normalise), job,
                                      current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {score_TU, choice_TK, chosen_TK, weight_TK, count_U};
}

Tensor router_backward_cuda(const MaybeTensor& score_grad_TU, const MaybeTensor& weight_grad_TK,
                            at::TensorList saved, int64_t score, int64_t normalise) {
  const Tensor &score_TU = saved[0], &choice_TK = saved[1], &weight_TK = saved[2];
  const c10::cuda::CUDAGuard guard(score_TU.device());
  Tensor grad_TU = torch::empty_like(score_TU);
  AT_DISPATCH_FLOATING_TYPES(score_TU.scalar_type(), "fused_router_backward", [&] {
    const fused_router_cuda::Backward<scalar_t> job{
        const_data_or_null<scalar_t>(score_grad_TU), const_data_or_null<scalar_t>(weight_grad_TK),
        score_TU.const_data_ptr<scalar_t>(),         choice_TK.const_data_ptr<int64_t>(),
        weight_TK.const_data_ptr<scalar_t>(),        grad_TU.data_ptr<scalar_t>()};
    fused_router_cuda::launch_backward(shape_of(score_TU, choice_TK.size(1), score, normalise), job,
                                       current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return grad_TU;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("fused_router", router_forward_cuda);
  m.impl("fused_router_backward", router_backward_cuda);
}

}  // namespace shoal
