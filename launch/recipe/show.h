#pragma once

#include <ostream>

#include "runtime/base/error.h"
#include "runtime/yaml/recipe_document.h"

namespace shoal {

/// `shoal show RECIPE [key=value …] [--minimal]`.
struct ShowArguments {
  config::RecipeSource source;
  bool minimal = false;  ///< only what differs from the defaults
};

/// Prints the resolved recipe, each value with where it came from; the output is a recipe again.
ExitCode show(const ShowArguments& arguments, std::ostream& out);

}  // namespace shoal
