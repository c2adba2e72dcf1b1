#pragma once

#include <cstdint>

#include "runtime/device/bfloat16.h"

struct CUstream_st;

// T tokens  A rows  D width

/// CUDA kernels that gather rows (tokens on their way to experts) and sum them back by token
/// (moe/kernels/permute_rows.h). Pointers are to GPU memory; calls are queued on the stream.
namespace shoal::permute_rows_cuda {

struct TokenRows {
  const int64_t* token_A;  ///< token of each row; -1: padding row
  int64_t num_rows, num_tokens;
};

/// Adds the number of each token's rows to count_T.
void launch_count(const TokenRows& rows, int64_t* count_T, CUstream_st* stream);
/// Writes each token's rows to row_A, in ascending order, from first_T1[t] on; first_T1 is 0 and
/// the inclusive sums of the counts. count_T: the counts, overwritten.
void launch_list(const TokenRows& rows, const int64_t* first_T1, int64_t* count_T, int64_t* row_A,
                 CUstream_st* stream);

/// out[i] = source[index[i]], zero where the index is negative. Rows are `row_bytes` bytes.
struct Gather {
  const void* source;
  const int64_t* index;
  void* out;
  int64_t num_rows, num_sources, row_bytes;
};
void launch_gather(const Gather& job, CUstream_st* stream);

/// out[t] = sum of weight[row[i]] * rows[row[i]] over i in [first[t], first[t + 1]), in order.
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

/// Backward pass of GatherSum with weights: grad_rows[a] = weight[a] * grad[token[a]] and
/// grad_weight[a] = <grad[token[a]], rows[a]>; zero on padding rows.
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
