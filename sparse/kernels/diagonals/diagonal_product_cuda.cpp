#include "sparse/kernels/diagonals/diagonal_product_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <limits>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/real_types.h"
#include "sparse/kernels/token_parts.h"

// T tokens  D weights of a diagonal  P the longer side  K diagonals
namespace shoal {
namespace {

using torch::Tensor;

diagonal_cuda::Diagonals diagonals_of(const Tensor& offset_K, int64_t shorter, int64_t longer) {
  TORCH_CHECK(longer <= std::numeric_limits<int32_t>::max(), "sparse diagonals: a side of ", longer,
              " is too long for 31 bits");
  return {static_cast<int32_t>(shorter), static_cast<int32_t>(longer),
          static_cast<int32_t>(offset_K.size(0)), offset_K.const_data_ptr<int32_t>()};
}

Tensor diagonal_multiply_cuda(const Tensor& from, const Tensor& values, const Tensor& offset_K,
                              const MaybeTensor& from_at, const MaybeTensor& to_at,
                              int64_t to_width, bool to_longer) {
  const c10::cuda::CUDAGuard guard(from.device());
  const int64_t T = from.size(0), from_width = from.size(1);
  const diagonal_cuda::Diagonals diagonals = to_longer
                                                 ? diagonals_of(offset_K, from_width, to_width)
                                                 : diagonals_of(offset_K, to_width, from_width);
  Tensor to = torch::empty({T, to_width}, from.options());
  AT_DISPATCH_FLOATING_TYPES(from.scalar_type(), "sparse_diagonal_multiply", [&] {
    const diagonal_cuda::Product<scalar_t> job{
        diagonals,
        values.const_data_ptr<scalar_t>(),
        {from.const_data_ptr<scalar_t>(), static_cast<int32_t>(from_width),
         const_data_or_null<int32_t>(from_at)},
        {to.data_ptr<scalar_t>(), static_cast<int32_t>(to_width),
         const_data_or_null<int32_t>(to_at)},
        T,
        to_longer};
    diagonal_cuda::launch_product(job, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return to;
}

Tensor diagonal_dots_cuda(const Tensor& shorter, const Tensor& longer, const Tensor& offset_K) {
  const c10::cuda::CUDAGuard guard(shorter.device());
  const int64_t T = shorter.size(0), D = shorter.size(1);
  const TokenParts tokens(T);
  Tensor sums = torch::empty({tokens.parts, offset_K.size(0), D}, shorter.options());
  AT_DISPATCH_FLOATING_TYPES(shorter.scalar_type(), "sparse_diagonal_dots", [&] {
    const diagonal_cuda::Dots<scalar_t> job{diagonals_of(offset_K, D, longer.size(1)),
                                            shorter.const_data_ptr<scalar_t>(),
                                            longer.const_data_ptr<scalar_t>(),
                                            T,
                                            tokens.part_tokens,
                                            tokens.parts,
                                            sums.data_ptr<scalar_t>()};
    diagonal_cuda::launch_dots(job, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sums;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("sparse_diagonal_multiply", diagonal_multiply_cuda);
  m.impl("sparse_diagonal_dots", diagonal_dots_cuda);
}

}  // namespace shoal
