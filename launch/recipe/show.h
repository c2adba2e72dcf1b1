#pragma once

#include <ostream>

#include "runtime/base/error.h"
#include "runtime/yaml/recipe_document.h"

namespace shoal {

/// `shoal show RECIPE [key=value …] [--minimal]`.
struct ShowArguments {
  config::RecipeSource source;
  bool minimal = false;  ///< only values that differ from the defaults
};

/// Prints the resolved recipe, with the origin of each value; the output is a valid recipe.
ExitCode show(const ShowArguments& arguments, std::ostream& out);

}  // namespace shoal
