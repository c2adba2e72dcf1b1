#pragma once

#include <ostream>

#include "launch/new_recipe/recipe_plan.h"
#include "runtime/base/error.h"

namespace shoal {

/// Prints a first recipe, small and commented, that passes `check`: the model sized for the data,
/// the task that suits both, and the router's usual balance losses. Throws Error (exit 2) for
/// unknown names, and for backbones, experts and data that cannot be combined; it lists what can.
ExitCode new_recipe(const NewArguments& arguments, std::ostream& out);

}  // namespace shoal
