#pragma once

#include <torch/types.h>

#include <string>

#include "moe/exchange/unit_placement.h"
#include "parallel/comm/rank_grid.h"

namespace shoal {

/// What a MoE layer is built from beside its options: ranks, tensor options, placement of units.
struct BuildContext {
  RankGrid* grid = nullptr;  ///< the process groups; null for a layer on one rank that is not run
  /// Device and dtype of the parameters; the device `meta` allocates nothing.
  torch::TensorOptions tensor_options = torch::TensorOptions().dtype(torch::kFloat32);
  bool is_causal = false;     ///< true if a token must not see later ones of its sample
  bool reads_tokens = false;  ///< true if layers need vocabulary ids (StepContext::token_bS)
  /// How units are assigned to ranks (recipe key parallel.placement).
  PlacementRule placement = PlacementRule::kContiguous;
  UnitLoads unit_load = {};  ///< for kByLoad: how often units were chosen; equal on all ranks
};

/// Returns the function that assigns units of the layer at module path `path` to ranks. With
/// kByLoad a unit's load counts as at least 1, so that unused units are spread too; a layer without
/// logged load, or with that of another number of units, is placed contiguously.
PlaceUnits placement_rule(const BuildContext& context, const std::string& path);

}  // namespace shoal
