#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/yaml/recipe_document.h"

namespace shoal {

/// Runs `shoal recipes`: lists the recipes (YAML files that configure runs) below `folder`, each
/// with the first sentence of its comment, or two if the first is only a name. With `words` lists
/// only recipes with all words in path or sentence; throws Error (exit 2) if no recipe has them.
ExitCode recipes(const std::string& folder, const std::vector<std::string>& words,
                 std::ostream& out);

/// Suggests at most three recipes for a missing `path`, as a user types them: files of that name,
/// or else of the most similar name, in the folder of `path`, or else below `folder`.
std::vector<std::string> nearest_recipes(const std::string& path, const std::string& folder);

/// Returns the folder of recipes of the program at path `program`: `configs` of its source tree, or
/// `share/shoal/configs` beside its `bin`, if installed. Throws Error (exit 2) if there is neither.
std::string find_recipes_folder(const std::string& program);

/// `shoal show RECIPE [key=value …] [--minimal]`.
struct ShowArguments {
  config::RecipeSource source;  ///< file and overrides
  bool minimal = false;         ///< only values that differ from the defaults
};

/// Prints a valid recipe with includes, overrides and defaults applied, and each value's origin.
ExitCode show(const ShowArguments& arguments, std::ostream& out);

}  // namespace shoal
