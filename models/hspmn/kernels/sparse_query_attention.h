#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

// B sequences  S tokens  N query heads  M heads of keys and values  H head width
// R queries of all sequences
namespace shoal {

/// The query tokens of each sequence: sequence b has rows [offset_b1[b], offset_b1[b + 1]).
struct SparseQueries {
  /// int64, ascending within a sequence: query r attends to keys 0 to limit_R[r], inclusive, of it.
  torch::Tensor limit_R;
  /// [B + 1], first 0, last R; a sequence may have no queries.
  std::vector<int64_t> offset_b1;
};

/// Sparse queries on dense keys (SQDK): softmax(scale q kᵀ) v of some tokens over all keys up to
/// their limits. Grouped-query attention: query head n reads key and value head n M / N.
///
/// Shapes: query [R, N, H]; key, value [B, M, S, H] -> [R, N, H]. float32, float64 or bfloat16, all
/// alike; bfloat16 is computed in float32. Strides are free, but the last dimension of keys and
/// values must be dense: they may be views of a projection's output or of a cache. Rows of keys and
/// values beyond a sequence's last limit are not read; their gradients are zero.
/// Differentiable in all three inputs. The backward pass uses the saved log-sum-exp of each row; no
/// tensor of R x S exists. On a GPU a head width above 128 takes the variant below, whose gradients
/// are LibTorch's. On the CPU results are bitwise independent of the number of threads and
/// of other sequences; a query's output is also independent of other queries. Source: HSPMN v2.1
/// (Jędryczko 2025), section 2.
torch::Tensor sparse_query_attention(const torch::Tensor& query_RNH, const torch::Tensor& key_BMSH,
                                     const torch::Tensor& value_BMSH, const SparseQueries& queries,
                                     double scale);

/// Options of sparse_query_attention_portable.
struct PortableAttention {
  double scale = 1.0;  ///< factor of the logits
  int64_t chunks = 8;  ///< each sequence's queries are split into this many consecutive runs
};

/// sparse_query_attention by LibTorch's attention with a mask, on any device: its fallback, and the
/// reference in tests. Each chunk of queries reads the keys up to its last limit, so that about 1 /
/// chunks of the work is masked out. Copies the limits to the host.
torch::Tensor sparse_query_attention_portable(const torch::Tensor& query_RNH,
                                              const torch::Tensor& key_BMSH,
                                              const torch::Tensor& value_BMSH,
                                              const SparseQueries& queries,
                                              const PortableAttention& options);

}  // namespace shoal
