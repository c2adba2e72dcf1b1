#pragma once

#include <ostream>

#include "launch/new_recipe/recipe_plan.h"
#include "runtime/base/error.h"

namespace shoal {

/// Prints a recipe for `shoal new --backbone NAME [--experts N] [--data SOURCE] [--path FOLDER]`:
/// commented, accepted by `check`, with a model sized for the data, a task that suits both and the
/// usual balance losses. Throws Error (exit 2), listing valid values, for unknown or clashing ones.
ExitCode new_recipe(const NewArguments& arguments, std::ostream& out);

}  // namespace shoal
