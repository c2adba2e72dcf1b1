#pragma once

#include <torch/types.h>

#include <vector>

#include "moe/moe_stats.h"

namespace shoal {

/// Output of a backbone's block, or of its MLP or the layer in place of it.
struct BlockOutput {
  torch::Tensor y;               ///< of the input's shape
  torch::Tensor auxiliary_loss;  ///< as ModelOutput's
  std::vector<MoeStats> moe;     ///< as ModelOutput's
  /// In evaluation, of a block with a token gate: bool [b, S], whether a token attends.
  torch::Tensor is_open_bS = {};
};

/// The sum of two losses either of which may be undefined, which counts as zero.
inline torch::Tensor add_loss(const torch::Tensor& total, const torch::Tensor& loss) {
  if (!loss.defined()) return total;
  return total.defined() ? total + loss : loss;
}

}  // namespace shoal
