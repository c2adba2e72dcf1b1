#include "sparse/kernels/blocks/block_product_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/real_types.h"
#include "sparse/kernels/token_parts.h"

// T tokens  b side of a block  z blocks
namespace shoal {
namespace {

using torch::Tensor;

Tensor block_multiply_cuda(const Tensor& from, const Tensor& values, at::TensorList blocks,
                           const MaybeTensor& from_at, const MaybeTensor& to_at,
                           bool is_transposed) {
  const c10::cuda::CUDAGuard guard(from.device());
  const Tensor &start = blocks[0], &column = blocks[1], &block = blocks[2];
  const int64_t T = from.size(0), b = values.size(1), to_width = (start.size(0) - 1) * b;
  Tensor to = torch::empty({T, to_width}, from.options());
  AT_DISPATCH_FLOATING_TYPES(from.scalar_type(), "sparse_block_multiply", [&] {
    const block_cuda::Product<scalar_t> job{
        b,
        start.const_data_ptr<int32_t>(),
        column.const_data_ptr<int32_t>(),
        block.const_data_ptr<int32_t>(),
        values.const_data_ptr<scalar_t>(),
        {from.const_data_ptr<scalar_t>(), from.size(1), const_data_or_null<int32_t>(from_at)},
        {to.data_ptr<scalar_t>(), to_width, const_data_or_null<int32_t>(to_at)},
        T,
        is_transposed};
    block_cuda::launch_product(job, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return to;
}

Tensor block_dots_cuda(const Tensor& dy, const Tensor& x, const Tensor& row, const Tensor& column,
                       int64_t size) {
  const c10::cuda::CUDAGuard guard(x.device());
  const TokenParts tokens(x.size(0));
  Tensor sums = torch::empty({tokens.parts, row.size(0), size, size}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_block_dots", [&] {
    const block_cuda::Dots<scalar_t> job{size,
                                         row.size(0),
                                         row.const_data_ptr<int32_t>(),
                                         column.const_data_ptr<int32_t>(),
                                         dy.const_data_ptr<scalar_t>(),
                                         x.const_data_ptr<scalar_t>(),
                                         dy.size(1),
                                         x.size(1),
                                         x.size(0),
                                         tokens.part_tokens,
                                         tokens.parts,
                                         sums.data_ptr<scalar_t>()};
    block_cuda::launch_dots(job, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sums;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("sparse_block_multiply", block_multiply_cuda);
  m.impl("sparse_block_dots", block_dots_cuda);
}

}  // namespace shoal
