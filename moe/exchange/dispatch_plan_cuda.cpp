#include "moe/exchange/dispatch_plan_cuda.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>
#include <torch/types.h>

#include <numeric>
#include <vector>

#include "runtime/device/current_stream_cuda.h"

// A rows this rank sends  R rows it receives  u units on this rank  E ranks  B rows of a buffer
namespace shoal {
namespace {

using torch::Tensor;

/// Returns held_B, row_A and piece_W of the buffer to send, of the received one, to_units_R,
/// to_arrival_R and end_u. sent_E, received_E: rows by rank; bytes: of a row and of a weight.
std::vector<Tensor> place_rows_cuda(const Tensor& token_A, const Tensor& row_A,
                                    const Tensor& count_Eu, c10::IntArrayRef sent_E,
                                    c10::IntArrayRef received_E, c10::IntArrayRef bytes) {
  const c10::cuda::CUDAGuard guard(token_A.device());
  const int64_t piece_bytes = std::gcd(bytes[0], bytes[1]);
  dispatch_plan_cuda::Plan plan{};
  plan.num_ranks = static_cast<int>(count_Eu.size(0));
  plan.own_units = static_cast<int>(count_Eu.size(1));
  plan.num_listed = static_cast<int>(row_A.size(0));
  plan.row_pieces = static_cast<int>(bytes[0] / piece_bytes);
  while (piece_bytes << plan.weight_shift < bytes[1]) ++plan.weight_shift;
  plan.token_A = token_A.const_data_ptr<int64_t>();
  plan.row_A = row_A.const_data_ptr<int64_t>();
  plan.count_Eu = count_Eu.const_data_ptr<int64_t>();
  std::vector<Tensor> lists;
  const auto list = [&](int64_t size) {
    return lists.emplace_back(torch::empty({size}, token_A.options())).data_ptr<int64_t>();
  };
  const auto buffer_of = [&](c10::IntArrayRef rows_E, bool is_received) {
    dispatch_plan_cuda::Buffer buffer{};
    int64_t rows = 0, packed = 0;
    for (size_t rank = 0; rank < rows_E.size(); ++rank) {
      rows += rows_E[rank];
      packed += rows_E[rank] + (rows_E[rank] * bytes[1] + bytes[0] - 1) / bytes[0];
      TORCH_CHECK(packed <= INT32_MAX, "dispatch: ", packed,
                  " rows on a GPU, fewer than 2^31; raise train.accumulate");
      buffer.rows_E1[rank + 1] = static_cast<int32_t>(rows);
      buffer.packed_E1[rank + 1] = static_cast<int32_t>(packed);
    }
    buffer.held_B = list(packed);
    buffer.row_A = list(is_received ? rows : row_A.size(0));
    buffer.piece_W = list(rows << plan.weight_shift);
    return buffer;
  };
  plan.to_send = buffer_of(sent_E, false);
  plan.received = buffer_of(received_E, true);
  plan.to_units_R = list(plan.received.rows_E1[plan.num_ranks]);
  plan.to_arrival_R = list(plan.received.rows_E1[plan.num_ranks]);
  lists.push_back(torch::empty({plan.own_units}, token_A.options().dtype(torch::kInt32)));
  plan.end_u = lists.back().data_ptr<int32_t>();
  dispatch_plan_cuda::launch_place_rows(plan, current_stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return lists;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CUDA, m) { m.impl("place_rows", place_rows_cuda); }

}  // namespace shoal
