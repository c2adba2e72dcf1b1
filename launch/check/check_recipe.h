#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/model/model_work.h"
#include "launch/model/sparse_layers.h"
#include "launch/recipe/recipe.h"
#include "models/backbone.h"
#include "parallel/checkpoint/manifest.h"
#include "runtime/yaml/recipe_document.h"

namespace shoal {

/// What a recipe's model is made of, found by building it on the meta device: nothing is allocated
/// and no data is opened.
struct ModelCounts {
  int64_t parameters = 0;
  int64_t parameters_headless = 0;  ///< without the classifier's weight and bias
  int64_t active_parameters = 0;  ///< of each MoE stage only the units that one token is routed to
  std::vector<MoeStageInfo> stages;
  std::vector<SparseLayerInfo> sparse;
  bool has_learned_gates = false;   ///< token gates that are trained
  int64_t views = 1;                ///< of each training image
  bool compares_samples = false;    ///< Task::compares_samples
  bool mixes_samples = false;       ///< Task::mixes_samples
  bool counts_entry_steps = false;  ///< Optimizer::counts_entry_steps
  CheckpointSize checkpoint;        ///< upper bounds
  std::optional<ModelWork> work;    ///< nothing if it is not known
};

/// A recipe in which nothing is wrong, as far as can be told before data is opened.
struct CheckedRecipe {
  LoadedRecipe loaded;
  std::shared_ptr<const DataSource> source;
  ModelCounts counts;
};

/// Reads a recipe and holds it against all that can be known without data or allocation: the rules
/// of its sections, model and optimizer, durations that the data cannot count (tokens of images),
/// overlap between the training and validation split, and check_topology
/// for `world` ranks, by default parallel.expert_ranks. A rule is left out if a section that it
/// reads holds a mistake already. Throws one ConfigError with every mistake: exit 11 if only the
/// topology is at fault, else 10.
CheckedRecipe check_recipe(const config::RecipeSource& source, config::UnsetVariable unset,
                           std::optional<int64_t> world);

/// Refuses a world that is not expert_ranks × replicas, units that do not divide evenly by
/// expert_ranks without parallel.uneven, nodes of unequal size, and chunks without tokens. Throws
/// ConfigError (exit 11): one line each, at its place in the recipe, with the arithmetic and the
/// valid choices.
void check_topology(const CheckedRecipe& checked, int64_t world);

/// True if a place in the training is behind its end for every possible length of an epoch, which
/// is unknown without the data. `place`: in steps. `scale`: the training's, or only the tokens of a
/// sample if total_steps is not set.
bool is_behind_end(const Recipe& recipe, StepScale scale,
                   const std::function<int64_t(const StepScale&)>& place);

}  // namespace shoal
