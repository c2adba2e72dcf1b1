#include "moe/kernels/permute_rows_cuda.h"

#include <ATen/ops/cumsum.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <tuple>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/real_types.h"

// T tokens  A rows  D width
namespace shoal {
namespace {

using torch::Tensor;

// How many rows belong to a token only the device knows: row_A has room for all of them.
std::tuple<Tensor, Tensor> invert_rows_cuda(const Tensor& token_A, int64_t num_tokens) {
  const c10::cuda::CUDAGuard guard(token_A.device());
  const permute_rows_cuda::TokenRows rows{token_A.const_data_ptr<int64_t>(), token_A.size(0),
                                          num_tokens};
  const int64_t num_rows = token_A.size(0);
  const auto numbers = torch::zeros({num_rows + 2 * num_tokens + 1}, token_A.options())
                           .split_with_sizes({num_rows, num_tokens, num_tokens + 1});
  const Tensor row_A = numbers[0], count_T = numbers[1], first_T1 = numbers[2];
  permute_rows_cuda::launch_count(rows, count_T.data_ptr<int64_t>(), current_stream());
  Tensor end_T = first_T1.narrow(0, 1, num_tokens);
  at::cumsum_out(end_T, count_T, 0);
  permute_rows_cuda::launch_list(rows, first_T1.const_data_ptr<int64_t>(),
                                 count_T.data_ptr<int64_t>(), row_A.data_ptr<int64_t>(),
                                 current_stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {first_T1, row_A};
}

Tensor gather_rows_cuda(const Tensor& x, const Tensor& index) {
  const c10::cuda::CUDAGuard guard(x.device());
  Tensor out = torch::empty({index.size(0), x.size(1)}, x.options());
  permute_rows_cuda::launch_gather(
      {x.const_data_ptr(), index.const_data_ptr<int64_t>(), out.mutable_data_ptr(), index.size(0),
       x.size(0), x.size(1) * static_cast<int64_t>(x.element_size())},
      current_stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

Tensor gather_sum_rows_cuda(const Tensor& rows, const MaybeTensor& weight, const Tensor& first,
                            const Tensor& row) {
  const c10::cuda::CUDAGuard guard(rows.device());
  const int64_t num_tokens = first.size(0) - 1;
  Tensor out = torch::empty({num_tokens, rows.size(1)}, rows.options());
  for_real_type(rows, "gather_sum_rows", [&]<class Real, class Weight>(Real, Weight) {
    const permute_rows_cuda::GatherSum<Real> job{const_data<Real>(rows),
                                                 const_data_or_null<Weight>(weight),
                                                 first.const_data_ptr<int64_t>(),
                                                 row.const_data_ptr<int64_t>(),
                                                 data<Real>(out),
                                                 num_tokens,
                                                 rows.size(1)};
    permute_rows_cuda::launch_gather_sum(job, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

std::tuple<Tensor, Tensor> combine_rows_backward_cuda(const Tensor& grad, const Tensor& rows,
                                                      const Tensor& weight, const Tensor& token) {
  const c10::cuda::CUDAGuard guard(rows.device());
  Tensor grad_rows = torch::empty_like(rows);
  Tensor grad_weight = torch::empty_like(weight);
  for_real_type(rows, "combine_rows_backward", [&]<class Real, class Weight>(Real, Weight) {
    const permute_rows_cuda::CombineBackward<Real> job{const_data<Real>(grad),
                                                       const_data<Real>(rows),
                                                       weight.const_data_ptr<Weight>(),
                                                       token.const_data_ptr<int64_t>(),
                                                       data<Real>(grad_rows),
                                                       grad_weight.data_ptr<Weight>(),
                                                       rows.size(0),
                                                       grad.size(0),
                                                       rows.size(1)};
    permute_rows_cuda::launch_combine_backward(job, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {grad_rows, grad_weight};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("invert_rows", invert_rows_cuda);
  m.impl("gather_rows", gather_rows_cuda);
  m.impl("gather_sum_rows", gather_sum_rows_cuda);
  m.impl("combine_rows_backward", combine_rows_backward_cuda);
}

}  // namespace shoal
