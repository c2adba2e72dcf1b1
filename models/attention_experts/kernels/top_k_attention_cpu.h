#pragma once

#include <torch/types.h>

#include "models/attention_experts/kernels/key_candidates.h"

// I images  N tokens of an image  D width  R queries of all images
namespace shoal {

/// True if the CPU's kernel supports these options: all keys as candidates, or a window.
inline bool has_top_k_kernel(const TopKOptions& options) {
  return options.candidates.from != CandidateKind::kPooled;
}

/// Tensors of one call, all float32 or all float64. Queries, keys and values: last stride 1.
struct TopKTensors {
  torch::Tensor query_RD, key_IND, value_IND;
  torch::Tensor weight_R = {};  ///< scales the outputs; undefined: 1
};

/// top_k_attention without its gradient: writes out_RD, whose rows must be dense.
void attend_top_k_cpu(const TopKTensors& tensors, const ImageQueries& queries,
                      const TopKOptions& options, const torch::Tensor& out_RD);

/// Gradients, laid out like the inputs; those of queries and weights are overwritten.
struct GradTensors {
  TopKTensors tensors;
  bool adds_to_keys = false;  ///< gradients of keys and values are added; else they overwrite
};

/// Gradients of top_k_attention from the gradient of its output, whose rows must be dense.
void differentiate_top_k_cpu(const torch::Tensor& grad_RD, const TopKTensors& tensors,
                             const GradTensors& to, const ImageQueries& queries,
                             const TopKOptions& options);

}  // namespace shoal
