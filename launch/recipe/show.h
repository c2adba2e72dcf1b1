#pragma once

#include <ostream>

#include "runtime/base/error.h"
#include "runtime/yaml/recipe_document.h"

namespace shoal {

/// `shoal show RECIPE [key=value …] [--minimal]`.
struct ShowArguments {
  config::RecipeSource source;  ///< file and overrides
  bool minimal = false;         ///< only values that differ from the defaults
};

/// Prints a valid recipe with includes, overrides and defaults applied, and each value's origin.
ExitCode show(const ShowArguments& arguments, std::ostream& out);

}  // namespace shoal
