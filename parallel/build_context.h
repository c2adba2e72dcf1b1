#pragma once

#include <torch/types.h>

#include "parallel/rank_grid.h"

namespace shoal {

/// What a layer needs beside its options: the ranks it is spread over, and where its tensors live.
/// On the `meta` device nothing is allocated.
struct BuildContext {
  RankGrid* grid = nullptr;
  torch::TensorOptions tensor_options = torch::TensorOptions().dtype(torch::kFloat32);
};

}  // namespace shoal
