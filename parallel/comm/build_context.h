#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "parallel/comm/rank_grid.h"

namespace shoal {

/// How the units of a layer are spread over the expert ranks.
enum class PlacementRule {
  kContiguous,  ///< runs of neighbouring units, equally many on each rank where they divide
  kByCost,      ///< longest processing time first, by the units' costs
  kByLoad,      ///< the same by the load that was logged before a resume, at least one choice each
};

/// The load of each unit of a layer, in any one measure, by the layer's path.
using UnitLoads = std::map<std::string, std::vector<double>>;

/// What a layer needs beside its options: the ranks it is spread over, and where its tensors live.
/// On the `meta` device nothing is allocated.
struct BuildContext {
  RankGrid* grid = nullptr;
  torch::TensorOptions tensor_options = torch::TensorOptions().dtype(torch::kFloat32);
  /// Dtype of activations that do not follow from an input, as in a model that reads token ids.
  torch::Dtype compute_dtype = torch::kFloat32;
  bool recomputes = false;    ///< whether the backward pass runs blocks again, to save memory
  std::string prefix = {};    ///< before the path of each layer; a task's second model has its own
  bool is_causal = false;     ///< whether a token may not see later ones of its sample
  bool reads_tokens = false;  ///< whether layers are told vocabulary ids (StepContext::token_bS)
  PlacementRule placement = PlacementRule::kContiguous;
  /// For kByLoad, equal on all ranks. Layers without an entry are placed contiguously.
  UnitLoads unit_load = {};
};

}  // namespace shoal
