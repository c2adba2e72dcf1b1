#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/model/build_model.h"
#include "launch/model/model_work.h"
#include "launch/recipe/recipe.h"
#include "models/backbone.h"
#include "parallel/checkpoint/manifest.h"
#include "runtime/yaml/recipe_document.h"
#include "sparse/sparse_plan.h"

namespace shoal {

/// What a recipe's model is made of.
struct ModelCounts {
  int64_t parameters = 0;
  int64_t parameters_headless = 0;  ///< without the classifier's weight and bias
  int64_t active_parameters = 0;    ///< with the units alone that one token is routed to
  std::vector<MoeStageInfo> stages;
  std::vector<SparseLayerInfo> sparse;
  std::vector<std::string> notes_on_accumulation;  ///< of its backbones
  /// Optimizer::state_kinds, Optimizer::entry_kinds.
  std::vector<std::string> state_kinds, entry_kinds;
  CheckpointSize checkpoint;      ///< upper bounds
  std::optional<ModelWork> work;  ///< nothing if unknown
};

/// A model on the meta device, where nothing is allocated and no data is opened, and its counts.
struct CheckedModel {
  BuiltModel built;
  ModelCounts counts;
};

/// A recipe in which nothing is wrong, as far as can be told before data is opened. Whatever needs
/// the shapes of its model asks `model`, instead of building another one.
struct CheckedRecipe {
  LoadedRecipe loaded;
  std::shared_ptr<const DataSource> source;
  BuiltModel model;  ///< on `meta`
  ModelCounts counts;
};

/// Reads a recipe and checks it against all that can be known without data or allocation: the rules
/// of its sections, model and optimizer, durations that the data cannot count (tokens of images),
/// overlap between the training and validation split, and check_ranks for `world` ranks, by default
/// parallel.expert_ranks. A rule is left out if a section that it reads holds a mistake already.
/// Throws one ConfigError with every mistake: exit 11 if only the topology is at fault, else 10.
CheckedRecipe check_recipe(const config::RecipeSource& source, config::UnsetVariable unset,
                           std::optional<int64_t> world);

/// True if a place in the training lies behind its end however long an epoch is, from one step on:
/// a recipe tells so much without its data. `place`: in steps. `scale`: that of the training; where
/// total_steps is not known, the tokens of a sample alone are read.
bool is_behind_end(const Recipe& recipe, StepScale scale,
                   const std::function<int64_t(const StepScale&)>& place);

}  // namespace shoal
