#include "runtime/optim/lamb_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <vector>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/tensor_table_cuda.h"

namespace shoal {
namespace {

void lamb_step_cuda(at::TensorList weights, at::TensorList gradients, at::TensorList m,
                    at::TensorList v, at::IntArrayRef num_matrices, double lr, double beta1,
                    double beta2, double correction1, double correction2, double eps,
                    double weight_decay, bool adapts, bool trust_clip) {
  const c10::cuda::CUDAGuard guard(weights[0].device());
  CUstream_st* const stream = current_stream();
  const TensorTable table = make_tensor_table({weights, gradients, m, v}, num_matrices);
  AT_DISPATCH_FLOATING_TYPES(weights[0].scalar_type(), "lamb_", [&] {
    using Real = scalar_t;
    const LambFactors<Real> factors =
        LambNumbers{beta1, beta2, correction1, correction2, eps, weight_decay}.factors<Real>();
    if (!adapts) {
      lamb_cuda::launch_plain(table.chunks, factors, static_cast<Real>(lr), stream);
      return;
    }
    const at::Tensor parts =
        torch::empty({table.chunks.num_chunks, 2}, weights[0].options().dtype(at::kDouble));
    const at::Tensor rates = torch::empty({table.chunks.num_matrices}, weights[0].options());
    lamb_cuda::launch_adaptive(table.chunks, factors, {lr, trust_clip}, parts.data_ptr<double>(),
                               rates.data_ptr<Real>(), stream);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor lamb_measure_cuda(at::TensorList weights, at::TensorList gradients, at::TensorList m,
                             at::TensorList v, double beta1, double beta2, double correction1,
                             double correction2, double eps, double weight_decay) {
  const c10::cuda::CUDAGuard guard(weights[0].device());
  const std::vector<int64_t> whole(weights.size(), 1);
  const TensorTable table = make_tensor_table({weights, gradients, m, v}, whole);
  const torch::TensorOptions doubles = weights[0].options().dtype(at::kDouble).requires_grad(false);
  const at::Tensor parts = torch::empty({table.chunks.num_chunks, 2}, doubles);
  at::Tensor sums = torch::empty({static_cast<int64_t>(weights.size()), 2}, doubles);
  AT_DISPATCH_FLOATING_TYPES(weights[0].scalar_type(), "lamb_measure_", [&] {
    lamb_cuda::launch_measure(
        table.chunks,
        LambNumbers{beta1, beta2, correction1, correction2, eps, weight_decay}.factors<scalar_t>(),
        parts.data_ptr<double>(), sums.data_ptr<double>(), current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sums;
}

void lamb_apply_cuda(at::TensorList weights, at::TensorList m, at::TensorList v,
                     const at::Tensor& rates, double correction1, double correction2, double eps,
                     double weight_decay) {
  const c10::cuda::CUDAGuard guard(weights[0].device());
  const std::vector<int64_t> whole(weights.size(), 1);
  // The kernel does not read gradients.
  const TensorTable table = make_tensor_table({weights, weights, m, v}, whole);
  const at::Tensor rate_P = rates.contiguous();
  AT_DISPATCH_FLOATING_TYPES(weights[0].scalar_type(), "lamb_apply_", [&] {
    lamb_cuda::launch_apply(
        table.chunks,
        LambNumbers{0.0, 0.0, correction1, correction2, eps, weight_decay}.factors<scalar_t>(),
        rate_P.const_data_ptr<double>(), current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("lamb_", &lamb_step_cuda);
  m.impl("lamb_measure_", &lamb_measure_cuda);
  m.impl("lamb_apply_", &lamb_apply_cuda);
}

}  // namespace shoal
