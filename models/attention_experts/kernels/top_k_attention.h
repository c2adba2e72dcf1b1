#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "models/attention_experts/kernels/key_candidates.h"

// I images  N tokens of an image  D width  R queries of all images
namespace shoal {

/// Top-k attention of some tokens to the tokens of their image: for each query and head the softmax
/// over the k highest logits q kᵀ / sqrt(D / heads) alone, times their values. Among equal q kᵀ the
/// earlier token is taken. A query is independent of the others, except that on a GPU LibTorch
/// computes q kᵀ and may round it differently for other numbers of queries.
///
/// Shapes: query [R, D]; key, value [I, N, D] -> [R, D]. float32, float64 or bfloat16, all alike;
/// bfloat16 is computed in float32. Rows may be strided views into wider rows. Differentiable in
/// all three inputs; the choice of keys is held constant. The CPU kernel, which supports all
/// candidates but pooled blocks, stores no R x N tensor: its backward pass recomputes logits and
/// choice, with equal bits. Source: Adaptive Sparse Attention MoE Architecture, component 4.
torch::Tensor top_k_attention(const torch::Tensor& query_RD, const torch::Tensor& key_IND,
                              const torch::Tensor& value_IND, const ImageQueries& queries,
                              const TopKOptions& options);

/// Columns, from `first` on, of the tensor rows[tensor] in a call of top_k_attention_of(rows, ...).
struct Columns {
  size_t tensor = 0;
  int64_t first = 0;
};

/// One expert in a call of top_k_attention_of.
struct TopKPart {
  Columns query;
  int64_t first_query = 0;  ///< first of its R rows in that tensor, where parts may be stacked
  Columns key, value;       ///< all rows of their tensors: one per token of the part's images
  ImageQueries queries;
  TopKOptions options;
  std::optional<Columns> weight = {};  ///< a column of R rows, scales outputs; unset: 1
};

/// Computes top_k_attention for several experts of width D as one autograd node. Queries, keys and
/// values are columns of the tensors `rows`, so that experts can share one matrix product. Parts
/// with the same key columns must have the same value columns and images; their gradients are
/// added. Any other entry of `rows` may be read by one part only (not checked); unread entries get
/// zero gradients. Results of a part are equal to those of a call of its own.
///
/// Returns the parts' outputs concatenated along dim 0, [sum of R, D], or, if all parts have R
/// queries, along dim 1, [R, parts D].
torch::Tensor top_k_attention_of(const std::vector<torch::Tensor>& rows,
                                 const std::vector<TopKPart>& parts, int64_t width, int64_t dim);

/// Reference of top_k_attention on any device, by LibTorch operators except q kᵀ on the CPU.
torch::Tensor top_k_attention_portable(const torch::Tensor& query_RD, const torch::Tensor& key_IND,
                                       const torch::Tensor& value_IND, const ImageQueries& queries,
                                       const TopKOptions& options);

/// Number of blocks of pooled keys in an image.
int64_t num_blocks(const KeyCandidates& candidates, const PatchGrid& grid);

/// Largest number of keys that a query may choose among.
int64_t num_candidates(const KeyCandidates& candidates, const PatchGrid& grid);

}  // namespace shoal
