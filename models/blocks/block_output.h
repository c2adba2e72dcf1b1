#pragma once

#include <torch/types.h>

#include <vector>

#include "moe/moe_stats.h"

namespace shoal {

/// What a backbone's block, or what stands in its MLP's place, gives back.
struct BlockOutput {
  torch::Tensor y;               ///< of the input's shape
  torch::Tensor auxiliary_loss;  ///< as ModelOutput's
  std::vector<MoeStats> moe;     ///< as ModelOutput's
};

}  // namespace shoal
