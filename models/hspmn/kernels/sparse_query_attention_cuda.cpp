#include "models/hspmn/kernels/sparse_query_attention_cuda.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <tuple>

#include "runtime/device/current_stream_cuda.h"
#include "runtime/device/real_types.h"

// B sequences  S tokens  N query heads  M heads of keys and values  W head width
// R queries of all sequences  P parts of the keys
namespace shoal {
namespace {

using sparse_query_cuda::Backward;
using sparse_query_cuda::Forward;
using sparse_query_cuda::Inputs;
using sparse_query_cuda::StridedRows;

/// Thread blocks that fill a GPU: two per multiprocessor of the largest ones.
constexpr int64_t kEnoughBlocks = 264;
constexpr int64_t kLeastPartKeys = 256;

template <class Value>
StridedRows<Value> strided_rows(const torch::Tensor& rows) {
  return {const_data<Value>(rows), rows.stride(0), rows.stride(1), rows.stride(2)};
}

torch::Tensor offsets_on(at::IntArrayRef offset, const at::Device& device) {
  return torch::tensor(offset, torch::kInt64).to(device, /*non_blocking=*/true);
}

struct SparseCudaCall {
  at::TensorList heads;
  const torch::Tensor& limit;
  const torch::Tensor& offset_b1;
  at::IntArrayRef offset;
  double scale;

  template <class Value>
  Inputs<Value> inputs() const {
    const torch::Tensor &query = heads[0], &key = heads[1], &value = heads[2];
    int64_t most = 0;
    for (size_t b = 0; b + 1 < offset.size(); ++b) {
      most = std::max(most, offset[b + 1] - offset[b]);
    }
    const auto checked = [](int64_t number) {
      TORCH_CHECK(number <= INT32_MAX, "sparse_query_attention: ", number,
                  " rows or columns on a GPU, fewer than 2^31; shorten the sequences");
      return static_cast<int>(number);
    };
    const auto size = [&](const torch::Tensor& x, int64_t dim) { return checked(x.size(dim)); };
    const int G = checked(query.size(1) / key.size(1));
    checked(most * G);
    return {const_data<Value>(query),
            strided_rows<Value>(key),
            strided_rows<Value>(value),
            const_data<int64_t>(limit),
            const_data<int64_t>(offset_b1),
            size(key, 0),
            size(key, 2),
            size(query, 1),
            size(key, 1),
            G,
            size(query, 2),
            query.size(0),
            most,
            scale};
  }
};

/// Number of key parts, chosen so that few queries fill the GPU, too.
template <class Value>
int64_t num_key_parts(const Inputs<Value>& in) {
  constexpr int64_t kRows = sparse_query_cuda::kRows<Value>;
  const int64_t tiles = (in.most_queries * in.G + kRows - 1) / kRows * in.B * in.M;
  const int64_t wanted = (kEnoughBlocks + tiles - 1) / std::max<int64_t>(1, tiles);
  return std::max<int64_t>(1, std::min(wanted, int64_t{in.S} / kLeastPartKeys));
}

std::tuple<torch::Tensor, torch::Tensor> attend_cuda(at::TensorList heads,
                                                     const torch::Tensor& limit,
                                                     at::IntArrayRef offset, double scale) {
  const torch::Tensor& query = heads[0];
  const c10::cuda::CUDAGuard guard(query.device());
  const torch::Tensor offset_b1 = offsets_on(offset, query.device());
  const torch::Tensor out = torch::empty(query.sizes(), query.options());
  torch::Tensor log_sum, part_out, part_log_sum;
  for_real_type(query, "sparse_query_attention", [&]<class Value, class Real>(Value, Real) {
    const auto options = query.options().dtype(c10::CppTypeToScalarType<Real>::value);
    const auto in = SparseCudaCall{heads, limit, offset_b1, offset, scale}.inputs<Value>();
    const int64_t parts = num_key_parts(in), kept = parts == 1 ? 0 : parts;
    constexpr int64_t kKeys = sparse_query_cuda::kKeys;
    log_sum = torch::empty({in.R, in.N}, options);
    part_out = torch::empty({kept, in.R, in.N, in.W}, options);
    part_log_sum = torch::empty({kept, in.R, in.N}, options);
    const Forward<Value> job{
        data<Value>(out),     data<Real>(log_sum),     parts, (in.S / parts / kKeys + 1) * kKeys,
        data<Real>(part_out), data<Real>(part_log_sum)};
    sparse_query_cuda::launch_forward(in, job, current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {out, log_sum};
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> attend_backward_cuda(
    const torch::Tensor& grad, at::TensorList saved, const torch::Tensor& limit,
    at::IntArrayRef offset, double scale) {
  const torch::Tensor &query = saved[0], &key = saved[1], &log_sum = saved[4];
  const c10::cuda::CUDAGuard guard(query.device());
  const torch::Tensor offset_b1 = offsets_on(offset, query.device());
  const torch::Tensor dot =
      (grad.to(log_sum.scalar_type()) * saved[3].to(log_sum.scalar_type())).sum(-1).contiguous();
  const torch::Tensor query_grad = torch::empty(query.sizes(), query.options());
  const torch::Tensor key_grad = torch::empty(key.sizes(), key.options());
  const torch::Tensor value_grad = torch::empty(key.sizes(), key.options());
  for_real_type(query, "sparse_query_attention", [&]<class Value, class Real>(Value, Real) {
    const Backward<Value> job{const_data<Value>(grad), const_data<Real>(log_sum),
                              const_data<Real>(dot),   data<Value>(query_grad),
                              data<Value>(key_grad),   data<Value>(value_grad)};
    sparse_query_cuda::launch_backward(
        SparseCudaCall{saved.slice(0, 3), limit, offset_b1, offset, scale}.inputs<Value>(), job,
        current_stream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {query_grad, key_grad, value_grad};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) {
  m.impl("sparse_query_attention_forward", attend_cuda);
  m.impl("sparse_query_attention_backward", attend_backward_cuda);
}

}  // namespace shoal
