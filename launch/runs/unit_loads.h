#pragma once

#include "launch/recipe/recipe.h"
#include "moe/exchange/unit_placement.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Loads for parallel.placement by_load: tokens routed to each unit at the last step logged by the
/// run to resume. Empty for other placement rules, and if nothing was logged. Collective; equal on
/// all ranks. Throws DataError for an invalid line. Does not check that the loads fit the model.
UnitLoads logged_loads(const Recipe& recipe, Communicator& world);

}  // namespace shoal
