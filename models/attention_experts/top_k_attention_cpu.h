#pragma once

#include <torch/types.h>

#include "models/attention_experts/top_k_attention.h"

// I images  N tokens of an image  D width  R queries of all images
namespace shoal {

/// Whether the CPU's kernel computes attention with these options: to all keys, or to a window.
inline bool has_top_k_kernel(const TopKOptions& options) {
  return options.candidates.from != CandidateKind::kPooled;
}

/// Tensors of one call, float32 or float64. The last dimension is dense.
struct TopKTensors {
  torch::Tensor query_RD, key_IND, value_IND;
};

/// top_k_attention without its gradient.
torch::Tensor attend_top_k_cpu(const TopKTensors& tensors, const ImageQueries& queries,
                               const TopKOptions& options);

/// Where gradients go, laid out as TopKTensors.
struct TopKGrads {
  TopKTensors tensors;
  bool adds_to_keys = false;  ///< those of keys and values are added to what is there
};
void differentiate_top_k_cpu(const torch::Tensor& grad_RD, const TopKTensors& tensors,
                             const TopKGrads& to, const ImageQueries& queries,
                             const TopKOptions& options);

}  // namespace shoal
