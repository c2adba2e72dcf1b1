#pragma once

#include <torch/types.h>

#include <vector>

#include "moe/moe_stats.h"

namespace shoal {

/// Output of a backbone's block, of its MLP, or of the layer in place of the MLP.
struct BlockOutput {
  torch::Tensor y;               ///< of the input's shape
  torch::Tensor auxiliary_loss;  ///< ModelOutput::auxiliary_loss of this block
  std::vector<MoeStats> moe;     ///< ModelOutput::moe of this block
  /// In evaluation of a block with a token gate: bool [b, S], true for tokens that attend.
  torch::Tensor is_open_bS = {};
};

/// The sum of two losses; an undefined one counts as zero.
inline torch::Tensor add_loss(const torch::Tensor& total, const torch::Tensor& loss) {
  if (!loss.defined()) return total;
  return total.defined() ? total + loss : loss;
}

}  // namespace shoal
