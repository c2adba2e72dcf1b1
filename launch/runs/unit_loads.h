#pragma once

#include "launch/recipe/recipe.h"
#include "parallel/comm/build_context.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// For parallel.placement by_load: number of choices of each unit at the last step logged by the
/// run to be resumed. Empty for other rules, and if nothing was logged. Collective; equal on all
/// ranks. Throws DataError on a malformed line. Does not check that the loads fit the model.
UnitLoads logged_loads(const Recipe& recipe, Communicator& world);

}  // namespace shoal
