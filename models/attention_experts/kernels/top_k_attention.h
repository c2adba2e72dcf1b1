#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "models/attention_experts/kernels/key_candidates.h"

// I images  N tokens of an image  D width  R queries of all images
namespace shoal {

/// The queries: those of image i are the rows [offset_i1[i], offset_i1[i + 1]).
struct ImageQueries {
  /// int64 [R]: index of each query's token in its image; undefined: every token of every image.
  torch::Tensor token_R;
  std::vector<int64_t> offset_i1;  ///< [I + 1], first 0, last R; an image may have no queries
};

/// Options of top-k attention.
struct TopKOptions {
  int64_t heads = 1;
  int64_t k = 1;  ///< keys per query; all candidates if there are no more than k
  KeyCandidates candidates = {};
  PatchGrid grid = {};  ///< used for candidates other than `all`
};

/// Multi-head attention of some tokens to the tokens of their image: for each query and head, the
/// softmax over only the k highest logits q kᵀ / sqrt(D / heads), times their values. Ties go to
/// the earlier token. Queries are independent of each other; on a GPU q kᵀ is LibTorch's, whose
/// rounding may depend on the number of queries.
///
/// Shapes: query [R, D]; key, value [I, N, D] -> [R, D]. float32, float64 or bfloat16, all alike;
/// bfloat16 is computed in float32. Rows may be parts of wider ones. Differentiable in all three,
/// with the choice held constant. The CPU's kernel, for all candidates but pooled blocks, saves no
/// R x N tensor for the backward pass, which recomputes logits and choice bit for bit. Source: the
/// adaptive sparse-attention denoiser, component 4.
torch::Tensor top_k_attention(const torch::Tensor& query_RD, const torch::Tensor& key_IND,
                              const torch::Tensor& value_IND, const ImageQueries& queries,
                              const TopKOptions& options);

/// A range of columns of one of a call's tensors.
struct Columns {
  size_t tensor = 0;
  int64_t first = 0;
};

/// One expert in a call of top_k_attention_of.
struct TopKPart {
  Columns query;
  int64_t first_query = 0;  ///< row of the query tensor at which its R queries start
  Columns key, value;       ///< rows are the tokens of its images
  ImageQueries queries;
  TopKOptions options;
  std::optional<Columns> weight = {};  ///< a column [R] that scales the outputs; unset: 1
};

/// top_k_attention of several experts of one width D, as one node of the graph. Queries, keys and
/// values are columns of `rows`, [rows, columns], so that experts can share one product. Parts with
/// the same key columns must have the same value columns and images, and their gradients are added;
/// each other column may be read by one part only (not checked), and unread columns get zero
/// gradients. Each part runs the CPU's kernel or the reference as it would alone.
///
/// Returns the outputs one after another (dim 0: [total R, D]) or, for equally many queries, side
/// by side (dim 1: [R, parts D]).
torch::Tensor top_k_attention_of(const std::vector<torch::Tensor>& rows,
                                 const std::vector<TopKPart>& parts, int64_t width, int64_t dim);

/// The reference: top_k_attention by LibTorch's operators, on any device, but for the CPU's q kᵀ.
torch::Tensor top_k_attention_portable(const torch::Tensor& query_RD, const torch::Tensor& key_IND,
                                       const torch::Tensor& value_IND, const ImageQueries& queries,
                                       const TopKOptions& options);

/// Number of blocks of pooled keys.
int64_t num_blocks(const KeyCandidates& candidates, const PatchGrid& grid);

/// Maximal number of candidate keys of a query.
int64_t num_candidates(const KeyCandidates& candidates, const PatchGrid& grid);

}  // namespace shoal
