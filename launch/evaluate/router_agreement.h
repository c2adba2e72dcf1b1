#pragma once

#include <torch/types.h>

#include <vector>

#include "models/task.h"
#include "moe/moe_stats.h"

namespace shoal {

/// Measures how stable routing is between evaluations: how many of this rank's validation tokens
/// keep their first expert, the router's first choice. Each evaluation calls begin_evaluation(),
/// add() for each batch, then counts(), with the same samples in the same order. Stores a small
/// integer per token and layer, in memory only: after a resume the first evaluation compares none.
class RouterAgreement {
 public:
  void begin_evaluation();
  /// Adds the next batch: the statistics of its MoE layers. Skips layers without first experts.
  /// TORCH_CHECK that this batch had as many tokens in the previous evaluation.
  void add(const std::vector<MoeStats>& layers);
  /// Since begin_evaluation(), over all layers: `sum`, tokens whose first expert is as before, and
  /// `weight`, tokens with an expert now or before, 0 in the first evaluation.
  NamedSum counts() const;

 private:
  std::vector<torch::Tensor> unit_T_;  ///< first experts of a batch's T tokens, by batch and layer
  size_t next_ = 0;                    ///< unit_T_ from here on is of the previous evaluation
  torch::Tensor counts_;  ///< int64: same, compared; on the units' device, undefined at first
};

}  // namespace shoal
