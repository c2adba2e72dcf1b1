// Must not fuse: sums of rows have the CPU's bits, which rounds each product.
#include <cuda_runtime.h>

#include "moe/kernels/permute_rows_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

// T tokens  A rows  D width
namespace shoal::permute_rows_cuda {
namespace {

using device::kThreads;
using device::own_row;
using device::Pack;
using device::require;
using device::RowLaunch;
using device::Sum;

constexpr int kInFlight = 4;  // packs that a lane loads before it stores

unsigned blocks_of(int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

__device__ int64_t own_thread() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }

__device__ int64_t atomic_add(int64_t* place, int64_t value) {
  return static_cast<int64_t>(atomicAdd(reinterpret_cast<unsigned long long*>(place),
                                        static_cast<unsigned long long>(value)));
}

__global__ void count_kernel(TokenRows rows, int64_t* count_T) {
  const int64_t a = own_thread();
  if (a >= rows.num_rows) return;
  const int64_t token = rows.token_A[a];
  require(token >= -1 && token < rows.num_tokens);
  if (token >= 0) atomic_add(count_T + token, 1);
}

__global__ void list_kernel(TokenRows rows, const int64_t* first_T1, int64_t* count_T,
                            int64_t* row_A) {
  const int64_t a = own_thread();
  if (a >= rows.num_rows) return;
  const int64_t token = rows.token_A[a];
  if (token >= 0) row_A[first_T1[token] + atomic_add(count_T + token, -1) - 1] = a;
}

// The list above is in any order. A token has few rows: insertion sort.
__global__ void sort_kernel(int64_t num_tokens, const int64_t* first_T1, int64_t* row_A) {
  const int64_t token = own_thread();
  if (token >= num_tokens) return;
  const int64_t first = first_T1[token], last = first_T1[token + 1];
  for (int64_t i = first + 1; i < last; ++i) {
    const int64_t row = row_A[i];
    int64_t place = i;
    for (; place > first && row_A[place - 1] > row; --place) row_A[place] = row_A[place - 1];
    row_A[place] = row;
  }
}

template <class Word>
__global__ void gather_kernel(Gather job, int64_t words) {
  const int64_t row = own_row();
  if (row >= job.num_rows) return;
  const int64_t from = job.index[row];
  require(from < job.num_sources);
  const Word* __restrict__ source = static_cast<const Word*>(job.source) + from * words;
  Word* __restrict__ out = static_cast<Word*>(job.out) + row * words;
  const int lanes = static_cast<int>(blockDim.x);
  for (int64_t c = threadIdx.x; c < words; c += lanes * kInFlight) {
    Word held[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t at = c + i * lanes;
      held[i] = Word{};
      if (at < words && from >= 0) held[i] = source[at];
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t at = c + i * lanes;
      if (at < words) out[at] = held[i];
    }
  }
}

template <class Word>
void gather_words(const Gather& job, CUstream_st* stream) {
  const int64_t words = job.row_bytes / static_cast<int64_t>(sizeof(Word));
  const RowLaunch launch(job.num_rows, words);
  gather_kernel<Word><<<launch.grid, launch.block, 0, stream>>>(job, words);
}

// Each lane holds kInFlight packs of the sum, and passes over the token's rows once for these.
template <int kPack, class Real>
__global__ void gather_sum_kernel(GatherSum<Real> job, int64_t packs) {
  using Weight = Sum<Real>;
  using Values = Pack<Real, kPack>;
  const int64_t token = own_row();
  if (token >= job.num_tokens) return;
  const int64_t first = job.first[token], last = job.first[token + 1];
  const auto* __restrict__ rows = reinterpret_cast<const Values*>(job.rows);
  auto* __restrict__ out = reinterpret_cast<Values*>(job.out) + token * packs;
  const int lanes = static_cast<int>(blockDim.x);
  for (int64_t c = threadIdx.x; c < packs; c += lanes * kInFlight) {
    Weight sum[kInFlight][kPack] = {};
    int64_t next = first < last ? job.row[first] : 0;  // one row ahead of its values
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = next;
      if (i + 1 < last) next = job.row[i + 1];
      const Weight weight = job.weight == nullptr ? Weight(1) : job.weight[row];
      Values held[kInFlight];
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const int64_t at = c + j * lanes;
        if (at < packs) held[j] = rows[row * packs + at];
      }
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        if (c + j * lanes >= packs) continue;
#pragma unroll
        for (int e = 0; e < kPack; ++e) {
          const Weight product = weight * device::widen(held[j].value[e]);
          sum[j][e] = i == first ? product : sum[j][e] + product;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const int64_t at = c + j * lanes;
      if (at >= packs) continue;
      Values result;
#pragma unroll
      for (int e = 0; e < kPack; ++e) result.value[e] = device::narrow<Real>(sum[j][e]);
      out[at] = result;
    }
  }
}

template <int kPack, class Real>
__global__ void combine_backward_kernel(CombineBackward<Real> job, int64_t packs) {
  using Weight = Sum<Real>;
  using Values = Pack<Real, kPack>;
  const int64_t row = own_row();
  const bool is_there = row < job.num_rows;  // all lanes take part in the sum
  const int64_t token = is_there ? job.token[row] : -1;
  require(token < job.num_tokens);
  const Weight weight = token >= 0 ? job.weight[row] : Weight(0);
  const auto* __restrict__ grad = reinterpret_cast<const Values*>(job.grad) + token * packs;
  const auto* __restrict__ from = reinterpret_cast<const Values*>(job.rows) + row * packs;
  auto* __restrict__ out = reinterpret_cast<Values*>(job.grad_rows) + row * packs;
  const int lanes = static_cast<int>(blockDim.x);
  Weight dot = 0;
  for (int64_t c = threadIdx.x; is_there && c < packs; c += lanes * 2) {
    Values grads[2] = {}, values[2] = {};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int64_t at = c + j * lanes;
      if (token < 0 || at >= packs) continue;
      grads[j] = grad[at];
      values[j] = from[at];
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int64_t at = c + j * lanes;
      if (at >= packs) continue;
      Values result = {};
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        if (token < 0) continue;
        const Weight value = device::widen(grads[j].value[e]);
        dot += value * device::widen(values[j].value[e]);
        result.value[e] = device::narrow<Real>(weight * value);
      }
      out[at] = result;
    }
  }
  dot = device::sum_lanes(dot);
  if (is_there && threadIdx.x == 0) job.grad_weight[row] = dot;
}

}  // namespace

void launch_count(const TokenRows& rows, int64_t* count_T, CUstream_st* stream) {
  if (rows.num_rows == 0) return;
  count_kernel<<<blocks_of(rows.num_rows), kThreads, 0, stream>>>(rows, count_T);
}

void launch_list(const TokenRows& rows, const int64_t* first_T1, int64_t* count_T, int64_t* row_A,
                 CUstream_st* stream) {
  if (rows.num_rows == 0 || rows.num_tokens == 0) return;
  list_kernel<<<blocks_of(rows.num_rows), kThreads, 0, stream>>>(rows, first_T1, count_T, row_A);
  sort_kernel<<<blocks_of(rows.num_tokens), kThreads, 0, stream>>>(rows.num_tokens, first_T1,
                                                                   row_A);
}

void launch_gather(const Gather& job, CUstream_st* stream) {
  if (job.num_rows == 0 || job.row_bytes == 0) return;
  const auto places = reinterpret_cast<uintptr_t>(job.source) |
                      reinterpret_cast<uintptr_t>(job.out) | static_cast<uintptr_t>(job.row_bytes);
  if (places % 16 == 0) return gather_words<uint4>(job, stream);
  if (places % 4 == 0) return gather_words<uint32_t>(job, stream);
  if (places % 2 == 0) return gather_words<uint16_t>(job, stream);
  gather_words<uint8_t>(job, stream);
}

template <class Real>
void launch_gather_sum(const GatherSum<Real>& job, CUstream_st* stream) {
  const auto launch = [&](const RowLaunch& rows, int64_t packs, auto pack) {
    gather_sum_kernel<decltype(pack)::value><<<rows.grid, rows.block, 0, stream>>>(job, packs);
  };
  device::with_packs<Real>(job.num_tokens, job.width, launch, job.rows, job.out);
}

template <class Real>
void launch_combine_backward(const CombineBackward<Real>& job, CUstream_st* stream) {
  const auto launch = [&](const RowLaunch& rows, int64_t packs, auto pack) {
    combine_backward_kernel<decltype(pack)::value>
        <<<rows.grid, rows.block, 0, stream>>>(job, packs);
  };
  device::with_packs<Real>(job.num_rows, job.width, launch, job.grad, job.rows, job.grad_rows);
}

template void launch_gather_sum(const GatherSum<float>&, CUstream_st*);
template void launch_gather_sum(const GatherSum<double>&, CUstream_st*);
template void launch_gather_sum(const GatherSum<Bfloat16>&, CUstream_st*);
template void launch_combine_backward(const CombineBackward<float>&, CUstream_st*);
template void launch_combine_backward(const CombineBackward<double>&, CUstream_st*);
template void launch_combine_backward(const CombineBackward<Bfloat16>&, CUstream_st*);

}  // namespace shoal::permute_rows_cuda
