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
};

}  // namespace shoal
