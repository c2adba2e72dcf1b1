#pragma once

#include "launch/recipe/recipe.h"
#include "moe/exchange/unit_placement.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// For parallel.placement by_load: how many choices each unit got at the last step that the run to
/// be resumed has logged. Empty for other rules, and where nothing has been logged. Collective;
/// equal on all ranks. Throws DataError on a line that is no record. Whether the loads fit the
/// model is not looked at.
UnitLoads logged_loads(const Recipe& recipe, Communicator& world);

}  // namespace shoal
