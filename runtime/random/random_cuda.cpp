#include "runtime/random/random_cuda.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include "runtime/device/current_stream_cuda.h"

namespace shoal {
namespace {

using philox::Distribution;
using philox::StreamKey;

StreamKey unpack(int64_t key, int64_t tag) {
  const auto bits = static_cast<uint64_t>(key);
  return {{static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)},
          static_cast<uint32_t>(tag)};
}

void random_fill_cuda(const at::Tensor& out, int64_t key, int64_t tag, int64_t distribution) {
  const c10::cuda::CUDAGuard guard(out.device());
  const auto kind = static_cast<Distribution>(distribution);
  CUstream_st* const stream = current_stream();
  if (out.scalar_type() == at::kDouble) {
    philox::launch_fill(unpack(key, tag), kind, out.mutable_data_ptr<double>(), out.numel(),
                        stream);
  } else {
    philox::launch_fill(unpack(key, tag), kind, out.mutable_data_ptr<float>(), out.numel(), stream);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <class Real>
void fill_rows(const StreamKey& key, Distribution kind, const at::Tensor& out_NP,
               const at::Tensor& id_N) {
  const philox::RowsOut<Real> rows{id_N.const_data_ptr<int64_t>(), out_NP.mutable_data_ptr<Real>(),
                                   out_NP.size(0), out_NP.size(1)};
  philox::launch_rows(key, kind, rows, current_stream());
}

void random_rows_cuda(const at::Tensor& out_NP, const at::Tensor& id_N, int64_t key, int64_t tag,
                      int64_t distribution) {
  const c10::cuda::CUDAGuard guard(out_NP.device());
  const auto kind = static_cast<Distribution>(distribution);
  if (out_NP.scalar_type() == at::kDouble) {
    fill_rows<double>(unpack(key, tag), kind, out_NP, id_N);
  } else {
    fill_rows<float>(unpack(key, tag), kind, out_NP, id_N);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("random_fill_", &random_fill_cuda);
  m.impl("random_rows_", &random_rows_cuda);
}

}  // namespace shoal
