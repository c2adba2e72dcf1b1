#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/recipe/recipe_document.h"

/// The subcommands that only look: no data is opened, nothing is written but to `out`.
namespace shoal {

/// `shoal check RECIPE [key=value …] [--world N] [--json]`.
struct CheckArguments {
  config::RecipeSource source;
  std::optional<int64_t> world;  ///< ranks to check for; parallel.expert_ranks if not given
  bool json = false;
};

/// Reads a recipe, builds its model without allocating and checks it against the number of ranks.
/// Notes, and no more, if run.device is cuda and this machine lacks the plug-in or a GPU.
/// Throws ConfigError: exit 10 for the recipe, 11 for the ranks.
ExitCode check(const CheckArguments& arguments, std::ostream& out);

/// `shoal show RECIPE [key=value …] [--minimal]`.
struct ShowArguments {
  config::RecipeSource source;
  bool minimal = false;  ///< only what differs from the defaults
};

/// Prints the resolved recipe, each value with where it came from; the output is a recipe again.
ExitCode show(const ShowArguments& arguments, std::ostream& out);

/// `shoal keys [NAME]`: documents every key, or those that print_keys finds by `name`. Throws Error
/// (exit 2), with the nearest key, if there is none.
ExitCode keys(const std::string& name, std::ostream& out);

/// `shoal recipes`: the recipes below `folder`, each with the first sentence of its comment.
ExitCode recipes(const std::string& folder, std::ostream& out);

/// The folder of the recipes that belong to the program at `program`: of the source tree it was
/// built in, or `share/shoal/configs` beside the `bin` it was installed to. Throws Error (exit 2)
/// if there is neither.
std::string find_recipes_folder(const std::string& program);

}  // namespace shoal
