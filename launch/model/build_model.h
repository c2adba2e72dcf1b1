#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "launch/recipe/recipe.h"
#include "models/task.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/data/data_source.h"
#include "runtime/module/state.h"
#include "sparse/layers/soft_cells.h"
#include "sparse/permutations/permutation.h"

namespace shoal {

/// A model built from a recipe, its parameters filled from the recipe's seed.
struct BuiltModel {
  std::shared_ptr<Task> task;                     ///< owns all modules
  std::vector<std::shared_ptr<MoeStage>> stages;  ///< of all its backbones
  std::vector<Parameter> parameters;              ///< of the task, in registration order
  std::vector<Parameter> buffers;                 ///< saved with them, and not trained by gradients
  std::vector<std::shared_ptr<Permutation>> permutations;  ///< of sparse layers; saved as well
  std::vector<std::shared_ptr<SoftCells>> soft_cells;      ///< likewise
};

/// Throws ConfigError (exit 11) that names a stage with more units than a device of this kind can
/// route to.
void check_units(const std::vector<std::shared_ptr<MoeStage>>& stages, torch::Device device);

/// Builds the task and its backbones for samples of this shape; parameters that optimizer.rules
/// freeze require no gradient. On `device` meta nothing is allocated or filled, and `grid` may be
/// null. `unit_load`: for parallel.placement by_load. Throws
/// ConfigError, also as check_units.
BuiltModel build_model(const Recipe& recipe, const DataShape& data, RankGrid* grid,
                       torch::Device device, const UnitLoads& unit_load = {});

/// The stage that owns a stack of its units' parameters; null for a parameter that is no stack.
/// Throws std::logic_error for a stack that belongs to no stage.
std::shared_ptr<MoeStage> stage_of(const Parameter& parameter, const BuiltModel& model);

/// What its backbones and sparse layers log.
LayerLogs layer_logs_of(const BuiltModel& model);

/// All modules inside Task::untrained.
std::set<const torch::nn::Module*> untrained_modules(const Task& task);

}  // namespace shoal
