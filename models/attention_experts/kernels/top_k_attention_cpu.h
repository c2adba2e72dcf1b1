#pragma once

#include <torch/types.h>

#include "models/attention_experts/kernels/key_candidates.h"

// I images  N tokens of an image  D width  R queries of all images
namespace shoal {

/// Whether the CPU's kernel computes attention with these options: to all keys, or to a window.
inline bool has_top_k_kernel(const TopKOptions& options) {
  return options.candidates.from != CandidateKind::kPooled;
}

/// Tensors of one call, all float32 or all float64. The last dimension of queries, keys and values
/// is dense.
struct TopKTensors {
  torch::Tensor query_RD, key_IND, value_IND;
  torch::Tensor weight_R = {};  ///< factors of the outputs; undefined: 1
};

/// top_k_attention without its gradient: writes out_RD, whose rows are dense.
void attend_top_k_cpu(const TopKTensors& tensors, const ImageQueries& queries,
                      const TopKOptions& options, const torch::Tensor& out_RD);

/// Where gradients go, laid out as the inputs. Those of queries and weights are overwritten.
struct GradTensors {
  TopKTensors tensors;
  bool adds_to_keys = false;  ///< those of keys and values are added, else overwritten
};

/// The gradients of top_k_attention by that of its output, whose rows are dense.
void differentiate_top_k_cpu(const torch::Tensor& grad_RD, const TopKTensors& tensors,
                             const GradTensors& to, const ImageQueries& queries,
                             const TopKOptions& options);

}  // namespace shoal
