#pragma once

#include <string>
#include <vector>

#include "tests/support/equality_recipe.h"

namespace shoal::testing {

/// Every router with every capacity rule that it takes, as cases on top of kEqualityRecipe, in both
/// Mixture-of-Experts stages. Each case trains with every balance loss that the router takes, in
/// all three scopes at once; kinds of experts, shared experts, placement and ranks without samples
/// take turns. A case's name tells all of them.
std::vector<EqualityCase> routing_matrix();

/// A selection of routing_matrix in which each router meets each capacity order and each mode, and
/// each order each mode: few enough to be run by several processes.
std::vector<EqualityCase> routing_selection();

}  // namespace shoal::testing
