#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "models/attention_experts/kernels/key_candidates.h"

// I images  N tokens of an image  D width  R queries of all images
namespace shoal {

/// Multi-head attention of some tokens to the tokens of their image: for each query and head the
/// softmax over the k highest logits q kᵀ / sqrt(D / heads) alone, times their values. Of equal
/// q kᵀ the earlier token is taken. A query is independent of the others; on a GPU q kᵀ is
/// LibTorch's, which may round by the number of queries.
///
/// Shapes: query [R, D]; key, value [I, N, D] -> [R, D]. float32, float64 or bfloat16, all alike;
/// bfloat16 is computed in float32. Rows may be parts of wider ones.
/// Differentiable in all three, the choice held constant. The CPU's kernel, which has all
/// candidates but pooled blocks, keeps nothing of R x N for the backward pass, which computes
/// logits and choice once more, to the same bits. Source: the adaptive sparse-attention denoiser,
/// component 4.
torch::Tensor top_k_attention(const torch::Tensor& query_RD, const torch::Tensor& key_IND,
                              const torch::Tensor& value_IND, const ImageQueries& queries,
                              const TopKOptions& options);

/// Some columns of one of a call's tensors.
struct Columns {
  size_t tensor = 0;
  int64_t first = 0;
};

/// One expert in a call of several.
struct TopKPart {
  Columns query;
  int64_t first_query = 0;  ///< the row of its tensor from which on its R queries are
  Columns key, value;       ///< of rows that are the tokens of its images
  ImageQueries queries;
  TopKOptions options;
  std::optional<Columns> weight = {};  ///< a column [R], factors of the outputs; unset: 1
};

/// top_k_attention of several experts of one width D in one node of the graph. Queries, keys and
/// values are columns of `rows`, [rows, columns], so that experts can share one product. Parts that
/// name the same key columns name the same value columns and images, and their gradients are added;
/// other columns are read by one part (not checked), and those that no part reads get zero
/// gradients. Each part runs the CPU's kernel or the reference as it would alone.
///
/// Returns the outputs one after another (dim 0: [R of all, D]), or side by side, of parts with
/// equally many queries (dim 1: [R, parts D]).
torch::Tensor top_k_attention_of(const std::vector<torch::Tensor>& rows,
                                 const std::vector<TopKPart>& parts, int64_t width, int64_t dim);

/// top_k_attention by LibTorch's operators but for the CPU's q kᵀ, on any device: the reference.
torch::Tensor top_k_attention_portable(const torch::Tensor& query_RD, const torch::Tensor& key_IND,
                                       const torch::Tensor& value_IND, const ImageQueries& queries,
                                       const TopKOptions& options);

/// Blocks of pooled keys.
int64_t num_blocks(const KeyCandidates& candidates, const PatchGrid& grid);

/// Keys that a query may choose among, at most.
int64_t num_candidates(const KeyCandidates& candidates, const PatchGrid& grid);

}  // namespace shoal
