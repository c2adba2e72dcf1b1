#include "runtime/random/random_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include "runtime/device/current_stream_cuda.h"

namespace shoal::philox {
namespace {

void random_rows_cuda(const at::Tensor& out_NP, const at::Tensor& id_N, at::IntArrayRef stream,
                      int64_t distribution) {
  const c10::cuda::CUDAGuard guard(out_NP.device());
  const StreamKey key =
      stream_key(stream[0], static_cast<uint32_t>(stream[1]), stream[2], stream[3]);
  AT_DISPATCH_FLOATING_TYPES(out_NP.scalar_type(), "random_rows_", [&] {
    const RowsOut<scalar_t> rows{id_N.const_data_ptr<int64_t>(),
                                 out_NP.mutable_data_ptr<scalar_t>(), out_NP.size(0),
                                 out_NP.size(1)};
    launch_rows(key, static_cast<Distribution>(distribution), rows, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) { m.impl("random_rows_", &random_rows_cuda); }

}  // namespace shoal::philox
