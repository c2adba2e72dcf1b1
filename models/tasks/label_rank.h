#pragma once

#include <torch/types.h>

#include <limits>

// b rows  N classes
namespace shoal {

/// Returns the rank of each sample's label, int64 [b], 0 for the best: the number of classes with a
/// higher logit, or an equal logit and lower id. A label with a NaN logit ranks last.
inline torch::Tensor rank_of_label(const torch::Tensor& logits_bN, const torch::Tensor& label_b) {
  const torch::Tensor own_b1 = logits_bN.gather(1, label_b.unsqueeze(1));
  const torch::Tensor class_N = torch::arange(logits_bN.size(1), label_b.options());
  const torch::Tensor before_bN =
      (logits_bN > own_b1) | ((logits_bN == own_b1) & (class_N < label_b.unsqueeze(1)));
  return before_bN.sum(1).masked_fill(own_b1.squeeze(1).isnan(),
                                      std::numeric_limits<int64_t>::max());
}

}  // namespace shoal
