#include "moe/kernels/row_top_k_cuda.h"

#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "runtime/device/current_stream_cuda.h"

namespace shoal {
namespace {

/// Any number of choices, by a stable sort: equal scores stay in the order of the units.
torch::Tensor top_k_sorted(const torch::Tensor& score_TU, int64_t k) {
  const torch::Tensor ordered_TU =
      score_TU.masked_fill(score_TU.isnan(), -std::numeric_limits<double>::infinity()).add_(0.0);
  const torch::Tensor order_TU =
      std::get<1>(ordered_TU.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true));
  return order_TU.narrow(1, 0, k).contiguous();
}

torch::Tensor choose_top_k(const torch::Tensor& score_TU, int64_t k) {
  const c10::cuda::CUDAGuard guard(score_TU.device());
  if (k > top_k_cuda::kMostChoices) return top_k_sorted(score_TU, k);
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

// One launch for neighbouring groups of equal length and count: two at most for a layer's.
torch::Tensor mark_lowest_cuda(const torch::Tensor& score_T, c10::IntArrayRef offsets,
                               c10::IntArrayRef counts) {
  const c10::cuda::CUDAGuard guard(score_T.device());
  torch::Tensor mark_T = torch::zeros({score_T.size(0)}, score_T.options().dtype(torch::kBool));
  const auto length_of = [&](size_t g) { return offsets[g + 1] - offsets[g]; };
  AT_DISPATCH_FLOATING_TYPES(score_T.scalar_type(), "mark_lowest", [&] {
    for (size_t g = 0, end = 0; g < counts.size(); g = end) {
      while (end < counts.size() && length_of(end) == length_of(g) && counts[end] == counts[g]) {
        ++end;
      }
      const top_k_cuda::MarkLowest<scalar_t> job{score_T.const_data_ptr<scalar_t>(),
                                                 mark_T.data_ptr<bool>(),
                                                 offsets[g],
                                                 length_of(g),
                                                 std::min(counts[g], length_of(g)),
                                                 static_cast<int64_t>(end - g)};
      top_k_cuda::launch_mark_lowest(job, current_stream());
    }
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return mark_T;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("top_k", choose_top_k);
  m.impl("mark_lowest", mark_lowest_cuda);
}

}  // namespace shoal
