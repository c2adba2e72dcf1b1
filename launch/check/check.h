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
  std::optional<int64_t> world;  ///< ranks to check for; parallel.expert_ranks if not given
  bool json = false;
  bool expressivity = false;  ///< bounds of the linear regions of sparse MLPs
  bool memory = false;        ///< measure activations by trial steps
};

/// Reads a recipe, builds its model without allocating (but for trial steps with --memory), and
/// checks it against the number of ranks. Notes, and no more, if run.device is cuda and this
/// machine lacks the plug-in or a GPU. Throws ConfigError: exit 10 for the recipe, 11 for the
/// ranks.
ExitCode check(const CheckArguments& arguments, std::ostream& out);

}  // namespace shoal
