#include "runtime/optim/lamb_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/kernels/tensor_table_cuda.h"

namespace shoal {
namespace {

using lamb_cuda::Trust;
using Numbers = at::ArrayRef<double>;

/// Averages; what launch_measure gives for each matrix.
at::Tensor measure(const TensorTable& table, at::ScalarType type, Numbers factors,
                   const Trust& trust) {
  const TensorChunks& chunks = table.chunks;
  const torch::TensorOptions doubles = table.memory.options().dtype(at::kDouble);
  const at::Tensor parts = torch::empty({chunks.num_chunks, 2}, doubles);
  at::Tensor out = torch::empty({chunks.num_matrices, trust.is_wanted ? 1 : 2}, doubles);
  AT_DISPATCH_FLOATING_TYPES(type, "lamb_measure_", [&] {
    lamb_cuda::launch_measure(chunks, lamb_factors<scalar_t>(factors), trust,
                              parts.data_ptr<double>(), out.data_ptr<double>(), current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

void apply(const TensorTable& table, at::ScalarType type, Numbers factors,
           const at::Tensor& rate_M) {
  AT_DISPATCH_FLOATING_TYPES(type, "lamb_apply_", [&] {
    lamb_cuda::launch_apply(table.chunks, lamb_factors<scalar_t>(factors),
                            rate_M.const_data_ptr<double>(), current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void lamb_step_cuda(at::TensorList weights, at::TensorList gradients, at::TensorList m,
                    at::TensorList v, at::IntArrayRef num_matrices, Numbers factors, double lr,
                    bool adapts, bool trust_clip) {
  const c10::cuda::CUDAGuard guard(weights[0].device());
  const at::ScalarType type = weights[0].scalar_type();
  const TensorTable table = make_tensor_table({weights, gradients, m, v}, num_matrices);
  if (adapts)
    return apply(table, type, factors, measure(table, type, factors, {true, lr, trust_clip}));
  AT_DISPATCH_FLOATING_TYPES(type, "lamb_", [&] {
    lamb_cuda::launch_plain(table.chunks, lamb_factors<scalar_t>(factors),
                            static_cast<scalar_t>(lr), current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor lamb_measure_cuda(at::TensorList weights, at::TensorList gradients, at::TensorList m,
                             at::TensorList v, Numbers factors) {
  const c10::cuda::CUDAGuard guard(weights[0].device());
  return measure(make_tensor_table({weights, gradients, m, v}), weights[0].scalar_type(), factors,
                 {});
}

void lamb_apply_cuda(at::TensorList weights, at::TensorList m, at::TensorList v,
                     const at::Tensor& rates, Numbers factors) {
  const c10::cuda::CUDAGuard guard(weights[0].device());
  // The kernel does not read gradients.
  apply(make_tensor_table({weights, weights, m, v}), weights[0].scalar_type(), factors,
        rates.contiguous());
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("lamb_", &lamb_step_cuda);
  m.impl("lamb_measure_", &lamb_measure_cuda);
  m.impl("lamb_apply_", &lamb_apply_cuda);
}

}  // namespace shoal
