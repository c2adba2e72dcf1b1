#pragma once

#include <cstdint>
#include <optional>
#include <ostream>

#include "runtime/base/error.h"
#include "runtime/yaml/recipe_document.h"

namespace shoal {

/// `shoal check RECIPE [key=value …] [--world N] [--json]`.
struct CheckArguments {
  config::RecipeSource source;
  std::optional<int64_t> world;  ///< number of ranks to check for; default: parallel.expert_ranks
  bool json = false;
  bool expressivity = false;  ///< bound the number of linear regions of sparse MLPs
  bool memory = false;        ///< measure activations by trial steps
};

/// Checks a recipe against the number of ranks; builds its model without allocating, except for
/// trial steps with --memory. A missing plug-in or GPU for run.device cuda is only noted. Throws
/// ConfigError: exit 10 for the recipe, 11 for the ranks.
ExitCode check(const CheckArguments& arguments, std::ostream& out);

}  // namespace shoal
