#pragma once

#include <cstdint>

#include "runtime/device/bfloat16.h"

struct CUstream_st;

// T tokens  A rows  D width

/// Kernels of moe/kernels/permute_rows.h. Pointers are to GPU memory; each call is queued on the
/// stream.
namespace shoal::permute_rows_cuda {

struct TokenRows {
  const int64_t* token_A;
  int64_t num_rows, num_tokens;
};

/// Adds the number of each token's rows to count_T. The order of additions has no effect.
void launch_count(const TokenRows& rows, int64_t* count_T, CUstream_st* stream);
/// Lists each token's rows in ascending order. first_T1 holds the inclusive sums of the counts;
/// next_T is a copy of it, overwritten.
void launch_list(const TokenRows& rows, const int64_t* first_T1, int64_t* next_T, int64_t* row_A,
                 CUstream_st* stream);

/// out[i] = source[index[i]], zero where the index is negative. Rows are `row_bytes` bytes.
struct Gather {
  const void* source;
  const int64_t* index;
  void* out;
  int64_t num_rows, num_sources, row_bytes;
};
void launch_gather(const Gather& job, CUstream_st* stream);

/// out[t] = sum over i in [first[t], first[t + 1]) of weight[row[i]] * rows[row[i]], one by one as
/// on the CPU.
template <class Real>
struct GatherSum {
  const Real* rows;
  const Wide<Real>* weight;  ///< nullptr: all 1
  const int64_t *first, *row;
  Real* out;
  int64_t num_tokens, width;
};
template <class Real>
void launch_gather_sum(const GatherSum<Real>& job, CUstream_st* stream);

/// grad_rows[a] = weight[a] * grad[token[a]] and grad_weight[a] = <grad[token[a]], rows[a]>; zero
/// on padding rows.
template <class Real>
struct CombineBackward {
  const Real *grad, *rows;
  const Wide<Real>* weight;
  const int64_t* token;
  Real* grad_rows;
  Wide<Real>* grad_weight;
  int64_t num_rows, num_tokens, width;
};
template <class Real>
void launch_combine_backward(const CombineBackward<Real>& job, CUstream_st* stream);

}  // namespace shoal::permute_rows_cuda
