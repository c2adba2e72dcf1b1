#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

// B sequences  S tokens  N query heads  M heads of keys and values  H head width
// R queries of all sequences
namespace shoal {

/// The queries: those of sequence b are rows [offset_b1[b], offset_b1[b + 1]).
struct SparseQueries {
  /// int64: query r attends to keys 0 .. limit_R[r] of its sequence; not descending within a
  /// sequence.
  torch::Tensor limit_R;
  /// [B + 1], first 0, last R; a sequence may have no queries.
  std::vector<int64_t> offset_b1;
};

/// softmax(scale q kᵀ) v of some tokens over all keys up to a limit: sparse queries on dense keys
/// (SQDK). Query head n reads head n M / N of keys and values.
///
/// Shapes: query [R, N, H]; key, value [B, M, S, H] -> [R, N, H]. float32, float64 or bfloat16, all
/// alike; bfloat16 is computed in float32. Any strides, but dense heads in keys and values, which
/// may be views of a projection's output or of a cache; rows after a sequence's last limit are not
/// read. Differentiable in all three. The log-sum-exp of each row is saved for the backward pass;
/// no R x S tensor exists. Gradients of keys and values after the last query are zeros. On the CPU
/// the bits of a query's result are independent of other queries, sequences and the number of
/// threads; the bits of gradients are independent of other sequences and the number of threads.
/// Source: HSPMN v2.1, section 2.
torch::Tensor sparse_query_attention(const torch::Tensor& query_RNH, const torch::Tensor& key_BMSH,
                                     const torch::Tensor& value_BMSH, const SparseQueries& queries,
                                     double scale);

/// Options of the portable implementation.
struct PortableAttention {
  double scale = 1.0;  ///< factor of the logits
  int64_t chunks = 8;  ///< parts into which a sequence's queries are split
};

/// sparse_query_attention by LibTorch's attention with a mask, on any device: each part of the
/// queries over the keys up to its last limit, so that about 1 / chunks of the work is masked out.
/// Copies the limits to the host.
torch::Tensor sparse_query_attention_portable(const torch::Tensor& query_RNH,
                                              const torch::Tensor& key_BMSH,
                                              const torch::Tensor& value_BMSH,
                                              const SparseQueries& queries,
                                              const PortableAttention& options);

}  // namespace shoal
