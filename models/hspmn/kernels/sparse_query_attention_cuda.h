#pragma once

#include <cstdint>

#include "runtime/device/bfloat16.h"

struct CUstream_st;

// B sequences  S tokens  N query heads  M heads of keys and values  G = N / M  W head width
// R queries of all sequences  P parts of the keys

/// CUDA launchers of sparse_query_attention.h, attention of selected queries to all keys. Pointers
/// are to GPU memory; calls are queued on the stream. Sums are float64 for float64, else float32.
namespace shoal::sparse_query_cuda {

/// Largest head width that the kernels support.
inline constexpr int64_t kMostWidth = 128;
/// Number of keys in a thread block's tile.
inline constexpr int kKeys = 32;

/// Rows of a thread block's query tile; the G query heads that share keys are rows of one tile.
template <class Value>
inline constexpr int kRows = sizeof(Value) == 8 ? 4 : 16;

/// A tensor [B, M, S, W] with contiguous rows and these strides.
template <class Value>
struct StridedRows {
  const Value* data;
  int64_t sequence, head, token;  ///< strides
};

/// Inputs of both passes. A sequence has fewer than 2^31 / G queries, which its caller checks.
template <class Value>
struct Inputs {
  const Value* query_RNW;
  StridedRows<Value> key, value;
  const int64_t* limit_R;
  const int64_t* offset_b1;
  int B, S, N, M, G, W;
  int64_t R;
  int64_t most_queries;  ///< maximum over the sequences
  double scale;
};

/// Output and log-sum-exp of the forward pass. With several parts, each of `part_keys` keys (a
/// multiple of kKeys), partial results are stored in the last two arrays and then merged.
template <class Value>
struct Forward {
  Value* out_RNW;
  Wide<Value>* log_sum_RN;
  int64_t parts, part_keys;
  Wide<Value>* out_PRNW;
  Wide<Value>* log_sum_PRN;
};
template <class Value>
void launch_forward(const Inputs<Value>& inputs, const Forward<Value>& job, CUstream_st* stream);

/// Arrays of the backward pass; the last three receive the gradients of queries, keys and values,
/// wholly overwritten, with deterministic sums. `dot_RN` is the inner product <grad, output>.
template <class Value>
struct Backward {
  const Value* grad_RNW;
  const Wide<Value>* log_sum_RN;
  const Wide<Value>* dot_RN;
  Value* query_RNW;
  Value* key_BMSW;
  Value* value_BMSW;
};
template <class Value>
void launch_backward(const Inputs<Value>& inputs, const Backward<Value>& job, CUstream_st* stream);

}  // namespace shoal::sparse_query_cuda
