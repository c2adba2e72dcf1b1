#include <cuda_runtime.h>

#include <algorithm>

#include "moe/exchange/dispatch_plan_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

// A rows sent  R rows received  u units on this rank  E ranks  B rows of a buffer  W weights
namespace shoal::dispatch_plan_cuda {
namespace {

using device::kThreads;

/// Writes the exclusive sums of value(0) to value(count - 1), and behind them the total. All
/// threads of the block call it.
template <class Value>
__device__ void exclusive_sums(int count, const Value& value, int32_t* sums) {
  __shared__ int32_t sum_of_thread[kThreads];
  const int thread = static_cast<int>(threadIdx.x), share = (count + kThreads - 1) / kThreads;
  const int first = share * thread < count ? share * thread : count;
  const int last = first + share < count ? first + share : count;
  int32_t sum = 0;
  for (int i = first; i < last; ++i) sum += value(i);
  sum_of_thread[thread] = sum;
  __syncthreads();
  for (int distance = 1; distance < kThreads; distance *= 2) {
    const int32_t before = thread >= distance ? sum_of_thread[thread - distance] : 0;
    __syncthreads();
    sum_of_thread[thread] += before;
    __syncthreads();
  }
  int32_t next = sum_of_thread[thread] - sum;
  for (int i = first; i < last; ++i) {
    sums[i] = next;
    next += value(i);
  }
  if (thread == kThreads - 1) sums[count] = sum_of_thread[thread];
  __syncthreads();
}

/// The last of `count` runs that begins at or before `value`.
__device__ int run_of(const int32_t* first, int count, int value) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) >> 1;
    (first[middle] <= value ? low : high) = middle;
  }
  return low;
}

/// A row in the order in which rows are sent or arrive.
struct Row {
  int rank, index;
};

__device__ int64_t packed_row(const Buffer& buffer, const Row& row) {
  return row.index - buffer.rows_E1[row.rank] + buffer.packed_E1[row.rank];
}

/// The row that the buffer holds at `packed`; index -1: weights.
__device__ Row held_row(const Buffer& buffer, int num_ranks, int packed) {
  const int rank = run_of(buffer.packed_E1, num_ranks, packed);
  const int index = packed - buffer.packed_E1[rank] + buffer.rows_E1[rank];
  return {rank, index < buffer.rows_E1[rank + 1] ? index : -1};
}

/// Writes the positions of the weight of a row, which is number `weight` in the result.
__device__ void place_weight(const Plan& plan, const Buffer& buffer, const Row& row, int weight) {
  const int rows_before = buffer.rows_E1[row.rank];
  const int64_t rows = buffer.packed_E1[row.rank] + buffer.rows_E1[row.rank + 1] - rows_before;
  const int64_t first =
      rows * plan.row_pieces + (int64_t{row.index - rows_before} << plan.weight_shift);
  for (int i = 0; i < 1 << plan.weight_shift; ++i) {
    buffer.piece_W[(int64_t{weight} << plan.weight_shift) + i] = first + i;
  }
}

__device__ void place_to_send(const Plan& plan, int i) {
  const Buffer& buffer = plan.to_send;
  const int num_ranks = plan.num_ranks, num_rows = buffer.rows_E1[num_ranks];
  if (i < buffer.packed_E1[num_ranks]) {
    const Row row = held_row(buffer, num_ranks, i);
    buffer.held_B[i] = row.index < 0 ? -1 : plan.token_A[row.index];
  }
  if (i < plan.num_listed) {
    const int row = static_cast<int>(plan.row_A[i]);
    buffer.row_A[i] = packed_row(buffer, {run_of(buffer.rows_E1, num_ranks, row), row});
  }
  if (i < num_rows) place_weight(plan, buffer, {run_of(buffer.rows_E1, num_ranks, i), i}, i);
}

/// arrival_Eu, order_uE: exclusive sums of the counts, in the order of arrival and of the units.
__device__ void place_received(const Plan& plan, const int32_t* arrival_Eu, const int32_t* order_uE,
                               int i) {
  const Buffer& buffer = plan.received;
  const int num_ranks = plan.num_ranks;
  // The threads of the rows write the others.
  if (i < buffer.packed_E1[num_ranks] && held_row(buffer, num_ranks, i).index < 0) {
    buffer.held_B[i] = -1;
  }
  if (i >= buffer.rows_E1[num_ranks]) return;
  const int block = run_of(order_uE, num_ranks * plan.own_units, i);
  const int unit = block / num_ranks, rank = block - unit * num_ranks;
  const Row row{rank, arrival_Eu[rank * plan.own_units + unit] + i - order_uE[block]};
  const int64_t packed = packed_row(buffer, row);
  buffer.row_A[i] = packed;
  buffer.held_B[packed] = i;
  plan.to_units_R[i] = row.index;
  plan.to_arrival_R[row.index] = i;
  place_weight(plan, buffer, row, i);
}

__global__ void place_rows_kernel(Plan plan) {
  extern __shared__ int32_t sums[];
  const int units = plan.own_units, ranks = plan.num_ranks, blocks = units * ranks;
  int32_t *arrival_Eu = sums, *order_uE = sums + blocks + 1;
  const auto count = [&](int rank, int unit) {
    return static_cast<int32_t>(plan.count_Eu[rank * units + unit]);
  };
  exclusive_sums(
      blocks, [&](int i) { return static_cast<int32_t>(plan.count_Eu[i]); }, arrival_Eu);
  exclusive_sums(
      blocks, [&](int i) { return count(i % ranks, i / ranks); }, order_uE);
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < units) plan.end_u[i] = order_uE[(i + 1) * ranks];
  place_to_send(plan, i);
  place_received(plan, arrival_Eu, order_uE, i);
}

}  // namespace

void launch_place_rows(const Plan& plan, CUstream_st* stream) {
  const int most = std::max({plan.to_send.packed_E1[plan.num_ranks], plan.num_listed,
                             plan.received.packed_E1[plan.num_ranks], plan.own_units});
  if (most == 0) return;
  const auto grid = static_cast<unsigned>((most + kThreads - 1) / kThreads);
  const size_t bytes = sizeof(int32_t) * 2 * (plan.own_units * plan.num_ranks + 1);
  place_rows_kernel<<<grid, kThreads, bytes, stream>>>(plan);
}

}  // namespace shoal::dispatch_plan_cuda
