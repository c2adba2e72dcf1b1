#pragma once

#include <string>
#include <vector>

#include "tests/support/equality_recipe.h"

namespace shoal::testing {

/// Every router with every capacity rule that it takes, as cases on top of kEqualityRecipe. Each
/// case trains with every balance loss that the router takes, in all three scopes at once, shared
/// experts and another placement of units by turns, in both Mixture-of-Experts stages.
std::vector<EqualityCase> routing_matrix();

/// Each router and each capacity rule once or more, few enough to be run by several processes.
std::vector<EqualityCase> routing_selection();

}  // namespace shoal::testing
