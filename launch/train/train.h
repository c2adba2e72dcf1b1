#pragma once

#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "runtime/base/error.h"
#include "runtime/yaml/recipe_document.h"

namespace shoal {

/// `shoal train RECIPE [key=value …]`.
struct TrainArguments {
  config::RecipeSource source;            ///< file and overrides
  bool override_fixed = false;            ///< --override: resume although the recipe differs
  std::vector<std::string> command_line;  ///< as typed, for env.json
};

/// Trains a recipe on all ranks; writes the run folder and prints a summary. Throws Error (exit 10,
/// 11) before the ranks have connected; later failures end the job with an exit code.
ExitCode train(const TrainArguments& arguments, const Environment& environment);

}  // namespace shoal
