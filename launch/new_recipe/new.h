#pragma once

#include <ostream>

#include "launch/new_recipe/recipe_plan.h"
#include "runtime/base/error.h"

namespace shoal {

/// Prints a small recipe with comments that passes `check`: the model sized for
/// the data, the task that both allow, and the balance losses that are usual for the router. Throws
/// Error (exit 2) for names that are none, and for backbones, experts and data that do not go
/// together, with those that do.
ExitCode new_recipe(const NewArguments& arguments, std::ostream& out);

}  // namespace shoal
