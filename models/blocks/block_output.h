#pragma once

#include <torch/types.h>

#include <vector>

#include "moe/moe_stats.h"

namespace shoal {

/// The output of a backbone's block, or of its MLP, MoE layer or other feed-forward layer.
struct BlockOutput {
  torch::Tensor y;               ///< of the input's shape
  torch::Tensor auxiliary_loss;  ///< this rank's share of weighted balance losses; undefined: none
  std::vector<MoeStats> moe;     ///< routing statistics, one entry per MoE layer
  /// Set in evaluation by blocks with a token gate (HSPMN v2.1): bool [b, S], true: token attends.
  torch::Tensor is_open_bS = {};
};

/// Adds two losses; an undefined tensor counts as zero.
inline torch::Tensor add_loss(const torch::Tensor& total, const torch::Tensor& loss) {
  if (!loss.defined()) return total;
  return total.defined() ? total + loss : loss;
}

}  // namespace shoal
