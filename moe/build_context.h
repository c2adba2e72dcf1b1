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
  /// For kByLoad: how often units were chosen, equal on all ranks. Layers without an entry are
  /// placed contiguously.
  UnitLoads unit_load = {};
};

/// Returns the function that places the units of the layer at module path `path`. kByLoad counts
/// each load as at least 1, which spreads unused units, and ignores entries of another length.
PlaceUnits placement_rule(const BuildContext& context, const std::string& path);

}  // namespace shoal
