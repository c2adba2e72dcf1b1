#include "runtime/optim/gradients_cuda.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/kernels/tensor_table_cuda.h"

namespace shoal {
namespace {

at::Tensor square_sums_cuda(at::TensorList tensors) {
  const c10::cuda::CUDAGuard guard(tensors[0].device());
  const TensorTable table = make_tensor_table({tensors});
  const torch::TensorOptions doubles = tensors[0].options().dtype(at::kDouble);
  const at::Tensor parts = torch::empty({table.chunks.num_chunks}, doubles);
  at::Tensor sums = torch::empty({std::ssize(tensors)}, doubles);
  launch_square_sums(table.chunks, parts.data_ptr<double>(), sums.data_ptr<double>(),
                     current_stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sums;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) { m.impl("square_sums", &square_sums_cuda); }

}  // namespace shoal
