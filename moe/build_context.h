#pragma once

#include <torch/types.h>

#include <string>

#include "moe/exchange/unit_placement.h"
#include "parallel/comm/rank_grid.h"

namespace shoal {

/// What a MoE layer is built from beside its options. A unit is an expert or a memory unit.
struct BuildContext {
  RankGrid* grid = nullptr;  ///< process groups; null: the layer holds all units but cannot run
  /// Device and dtype of the parameters; the device `meta` allocates nothing.
  torch::TensorOptions tensor_options = torch::TensorOptions().dtype(torch::kFloat32);
  bool is_causal = false;      ///< true if a token must not see later ones of its sample
  bool has_token_ids = false;  ///< true if the input is vocabulary ids (StepContext::token_bS)
  /// How units are assigned to ranks (recipe key parallel.placement).
  PlacementRule placement = PlacementRule::kContiguous;
  /// For kByLoad: how often each unit was chosen; the same on all ranks. Units of a layer without
  /// an entry are placed contiguously.
  UnitLoads unit_load = {};
};

/// Returns the function that places the units of the layer at module path `path`. kByLoad counts
/// each load as at least 1, which spreads unused units, and ignores loads of another unit count.
PlaceUnits placement_rule(const BuildContext& context, const std::string& path);

}  // namespace shoal
