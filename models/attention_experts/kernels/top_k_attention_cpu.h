#pragma once

#include <torch/types.h>

#include "models/attention_experts/kernels/top_k_attention.h"

// I images  N tokens of an image  D width  R queries of all images
namespace shoal {

/// True if the CPU kernel supports these options: all candidates but pooled blocks.
inline bool has_top_k_kernel(const TopKOptions& options) {
  return options.candidates.from != CandidateKind::kPooled;
}

/// Inputs of one call, all float32 or all float64. Queries, keys and values have a stride of 1 in
/// the last dimension.
struct TopKTensors {
  torch::Tensor query_RD, key_IND, value_IND;
  torch::Tensor weight_R = {};  ///< scales the outputs; undefined: 1
};

/// Forward pass of top_k_attention; writes out_RD, whose rows are contiguous.
void attend_top_k_cpu(const TopKTensors& tensors, const ImageQueries& queries,
                      const TopKOptions& options, const torch::Tensor& out_RD);

/// Outputs of the backward pass, laid out as the inputs. Gradients of queries and weights are
/// overwritten.
struct GradTensors {
  TopKTensors tensors;
  bool adds_to_keys = false;  ///< adds to gradients of keys and values; else overwrites them
};

/// Backward pass of top_k_attention from the output's gradient, whose rows are contiguous.
void differentiate_top_k_cpu(const torch::Tensor& grad_RD, const TopKTensors& tensors,
                             const GradTensors& to, const ImageQueries& queries,
                             const TopKOptions& options);

}  // namespace shoal
