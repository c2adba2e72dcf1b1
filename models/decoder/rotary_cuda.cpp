#include "models/decoder/rotary_cuda.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/real_types.h"

// B sequences  N heads  S tokens  H head width
namespace shoal {
namespace {

using torch::Tensor;

/// Heads that are parts of wider rows, such as queries of a product, are read where they are.
bool has_whole_packs(const Tensor& x) {
  return x.stride(3) == 1 && x.stride(0) % 4 == 0 && x.stride(1) % 4 == 0 && x.stride(2) % 4 == 0;
}

Tensor rotate_cuda(const Tensor& x_BNSH, const Tensor& cos, const Tensor& sin, bool is_inverse) {
  const c10::cuda::CUDAGuard guard(x_BNSH.device());
  const Tensor x = has_whole_packs(x_BNSH) ? x_BNSH : x_BNSH.contiguous();
  const Tensor y = torch::empty(x.sizes(), x.options());
  const rotary_cuda::Heads heads{x.size(0),   x.size(1),   x.size(2),  x.size(3) / 2,
                                 x.stride(0), x.stride(1), x.stride(2)};
  for_real_type(x, "rotate", [&]<class Real, class Sum>(Real, Sum) {
    const rotary_cuda::Rotate<Real> job{const_data<Real>(x),  data<Real>(y),  const_data<Sum>(cos),
                                        const_data<Sum>(sin), cos.dim() == 4, is_inverse};
    launch(heads, job, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) { m.impl("rotate", rotate_cuda); }

}  // namespace shoal
