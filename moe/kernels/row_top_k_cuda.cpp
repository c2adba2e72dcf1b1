#include "moe/kernels/row_top_k_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "runtime/device/current_stream_cuda.h"

namespace shoal {
namespace {

/// The columns of each row in descending order of their scores, equal scores in the order of the
/// columns.
torch::Tensor columns_by_score(const torch::Tensor& score_TU) {
  const torch::Tensor ordered_TU =
      score_TU.masked_fill(score_TU.isnan(), -std::numeric_limits<double>::infinity()).add_(0.0);
  return ordered_TU.argsort(/*stable=*/true, /*dim=*/1, /*descending=*/true);
}

torch::Tensor choose_top_k(const torch::Tensor& score_TU, int64_t k) {
  const c10::cuda::CUDAGuard guard(score_TU.device());
  if (k > top_k_cuda::kMostChoices) return columns_by_score(score_TU).narrow(1, 0, k).contiguous();
  torch::Tensor unit_TK =
      torch::empty({score_TU.size(0), k}, score_TU.options().dtype(torch::kInt64));
  AT_DISPATCH_FLOATING_TYPES(score_TU.scalar_type(), "top_k", [&] {
    const top_k_cuda::TopK<scalar_t> job{score_TU.const_data_ptr<scalar_t>(),
                                         unit_TK.data_ptr<int64_t>(),
                                         nullptr,
                                         score_TU.size(0),
                                         score_TU.size(1),
                                         k};
    top_k_cuda::launch_top_k(job, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return unit_TK;
}

// One sort for neighbouring groups of equal length and count: two at most for a layer's.
torch::Tensor mark_lowest_cuda(const torch::Tensor& score_T, c10::IntArrayRef offsets,
                               c10::IntArrayRef counts) {
  const c10::cuda::CUDAGuard guard(score_T.device());
  torch::Tensor mark_T = torch::zeros({score_T.size(0)}, score_T.options().dtype(torch::kBool));
  const auto length_of = [&](size_t g) { return offsets[g + 1] - offsets[g]; };
  for (size_t g = 0, end = 0; g < counts.size(); g = end) {
    while (end < counts.size() && length_of(end) == length_of(g) && counts[end] == counts[g]) {
      ++end;
    }
    const int64_t length = length_of(g), count = std::min(counts[g], length);
    if (count == 0) continue;
    const auto rows_of = [&](const torch::Tensor& tensor) {
      return tensor.slice(0, offsets[g], offsets[end]).view({-1, length});
    };
    const torch::Tensor lowest =
        columns_by_score(rows_of(score_T)).narrow(1, length - count, count);
    rows_of(mark_T).scatter_(1, lowest, true);
  }
  return mark_T;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("top_k", choose_top_k);
  m.impl("mark_lowest", mark_lowest_cuda);
}

}  // namespace shoal
