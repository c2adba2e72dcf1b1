#pragma once

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/module/parameter.h"

namespace shoal {

/// Parameters with copies on the same set of ranks. Gradients are summed over these ranks.
struct ParameterGroup {
  std::vector<Parameter> parameters;
  Communicator* replicas = nullptr;  ///< the ranks that hold copies; not owned
  std::vector<int64_t> places;       ///< index of each parameter in the list of all parameters
};

/// Groups a model's parameters by their replicas. Returns at most two groups: first the whole
/// parameters, copied on all ranks, then the stacked ones (an expert stack: one matrix for each
/// expert of this rank), copied on the ranks of grid.replica. Groups keep the given order. Empty
/// groups and tensors that require no gradient are left out. `grid` must outlive the groups.
std::vector<ParameterGroup> group_parameters(const std::vector<Parameter>& parameters,
                                             RankGrid& grid);

}  // namespace shoal
