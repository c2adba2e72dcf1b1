#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/yaml/recipe_document.h"
#include "sparse/linear_regions.h"
#include "sparse/sparse_plan.h"

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

/// Lower bound on the number of linear regions of a model's MLPs, for one kind of masks.
struct Expressivity {
  std::string setting;  ///< "dense or unstructured", "these masks", "these masks, permuted"
  RegionBound bound;
};

/// Shows how much expressivity structured sparsity masks leave to a model: a ReLU MLP cuts its
/// input space into linear regions, the more the better. Takes the sparse MLP layers among
/// `layers`, except stacks of experts, as one ReLU MLP. Returns bounds for dense or free
/// (unstructured) masks, for its own masks, and for these with a permutation before each layer.
/// Throws ConfigError if no MLP layer is sparse. Source: PA-DST ("Efficient Dynamic Structured
/// Sparse Training with Learned Shuffles"), appendix C.
std::vector<Expressivity> expressivity_of(const std::vector<SparseLayerInfo>& layers);

}  // namespace shoal
