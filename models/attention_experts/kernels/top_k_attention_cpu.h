#pragma once

#include <torch/types.h>

#include "models/attention_experts/kernels/key_candidates.h"

// CPU kernel of top_k_attention (top_k_attention.h): softmax over the k highest logits
// q kᵀ / sqrt(D / heads) of a query, among the keys of its image or those in a window around it.
// ImageQueries has the query rows of each image; TopKOptions has k, heads and candidate keys, which
// must not be kPooled (TORCH_CHECK).
// I images  N tokens of an image  D width  R queries of all images
namespace shoal {

/// Tensors of one call, all float32 or all float64. Queries, keys and values: last stride 1.
struct TopKTensors {
  torch::Tensor query_RD, key_IND, value_IND;
  torch::Tensor weight_R = {};  ///< scales the outputs; undefined: 1
};

/// top_k_attention without its gradient: writes out_RD, whose rows must be dense.
void attend_top_k_cpu(const TopKTensors& tensors, const ImageQueries& queries,
                      const TopKOptions& options, const torch::Tensor& out_RD);

/// Gradients, laid out like the inputs. Gradients of queries and weights are overwritten.
struct GradTensors {
  TopKTensors tensors;
  bool adds_to_keys = false;  ///< adds to the gradients of keys and values; else overwrites them
};

/// Gradients of top_k_attention from the gradient of its output, whose rows must be dense.
void differentiate_top_k_cpu(const torch::Tensor& grad_RD, const TopKTensors& tensors,
                             const GradTensors& to, const ImageQueries& queries,
                             const TopKOptions& options);

}  // namespace shoal
