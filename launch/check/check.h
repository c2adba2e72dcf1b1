#pragma once

#include <cstdint>
#include <optional>
#include <ostream>

#include "runtime/base/error.h"
#include "runtime/yaml/recipe_document.h"

namespace shoal {

/// Arguments of `shoal check RECIPE [key=value …] [--world N] [--memory] [--expressivity] …`.
struct CheckArguments {
  config::RecipeSource source;  ///< recipe file and overrides of its keys
  std::optional<int64_t>
      world;          ///< number of ranks to check for; default: parallel.expert_ranks, auto: 1
  bool json = false;  ///< prints one JSON object
  bool expressivity = false;  ///< bounds the number of linear regions of sparse MLPs
  bool memory = false;        ///< measures activations by trial training steps
};

/// Checks a recipe (the YAML file of a training) for a number of ranks and prints what its model
/// consists of, with notes and warnings. Allocates no model, except for trial steps with --memory.
/// The last line is `good`, or tells what the good recipe cannot run for on this machine: missing
/// data, memory or GPU, in JSON `ready` and `obstacles`; this is no failure. Throws ConfigError:
/// exit 10 for mistakes in the recipe, 11 if the ranks do not fit.
ExitCode check(const CheckArguments& arguments, std::ostream& out);

}  // namespace shoal
