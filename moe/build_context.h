#pragma once

#include <torch/types.h>

#include <string>

#include "moe/exchange/unit_placement.h"
#include "parallel/comm/rank_grid.h"

namespace shoal {

/// The facts that a layer is built from beside its options: the ranks it is spread over, and where
/// its tensors live. On the `meta` device nothing is allocated.
struct BuildContext {
  RankGrid* grid = nullptr;
  torch::TensorOptions tensor_options = torch::TensorOptions().dtype(torch::kFloat32);
  bool is_causal = false;     ///< true if a token must not see later ones of its sample
  bool reads_tokens = false;  ///< true if layers need vocabulary ids (StepContext::token_bS)
  PlacementRule placement = PlacementRule::kContiguous;
  /// Logged loads for kByLoad, equal on all ranks. Layers without an entry are placed contiguously.
  UnitLoads unit_load = {};
};

/// Returns the recipe's rule for the layer at `path`. By load, a unit counts as chosen at least
/// once, so that units without load are spread too. A layer without logged load, or with that of
/// another number of units, is placed contiguously.
PlaceUnits placement_rule(const BuildContext& context, const std::string& path);

}  // namespace shoal
