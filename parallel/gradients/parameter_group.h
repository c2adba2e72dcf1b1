#pragma once

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/module/parameter.h"

namespace shoal {

/// Parameters that the same ranks hold copies of.
struct ParameterGroup {
  std::vector<Parameter> parameters;
  Communicator* replicas = nullptr;  ///< ranks whose gradients add up; not owned
  /// Place of each parameter in the order of registration, over all groups.
  std::vector<int64_t> places;
};

/// Groups parameters: stacked ones are replicated over grid.replica, all others over grid.world. At
/// most two groups, whole parameters first, each in the given order; an empty group is left out,
/// and so are tensors that require no gradient. `grid` must outlive the groups.
std::vector<ParameterGroup> group_parameters(const std::vector<Parameter>& parameters,
                                             RankGrid& grid);

}  // namespace shoal
