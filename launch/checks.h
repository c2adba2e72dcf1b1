#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/recipe.h"
#include "models/backbone.h"

namespace shoal {

/// What a recipe's model is made of, found by building it on the meta device: nothing is allocated
/// and no data is opened.
struct ModelCounts {
  int64_t parameters = 0;
  int64_t parameters_headless = 0;  ///< without the classifier's weight and bias
  int64_t active_parameters = 0;    ///< of each MoE stage only the units that one token visits
  std::vector<MoeStageInfo> stages;
};

/// Throws ConfigError if the model's options do not fit together.
ModelCounts count_parameters(const Recipe& recipe);

/// Refuses a world that is not expert_ranks × replicas, and units that do not divide evenly by
/// expert_ranks without parallel.uneven. Throws ConfigError (exit 11): one line each, at its place
/// in the recipe, with the arithmetic and the valid choices.
void check_topology(const LoadedRecipe& loaded, const std::vector<MoeStageInfo>& stages,
                    int64_t world);

/// The same for the model that the recipe describes.
void check_topology(const LoadedRecipe& loaded, int64_t world);

/// Refuses what only training asks for: durations that this recipe's data cannot count, as tokens
/// of images, and records that are both trained on and judged by. Opens no data. Throws
/// ConfigError.
void check_training(const LoadedRecipe& loaded);

/// Builds model and optimizer without allocating them. Throws ConfigError, each line located.
void check_model(const LoadedRecipe& loaded);

/// What is allowed but worth knowing; one line each.
std::vector<std::string> recipe_notes(const LoadedRecipe& loaded);

}  // namespace shoal
