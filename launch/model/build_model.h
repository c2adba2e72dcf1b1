#pragma once

#include <torch/types.h>

#include <memory>
#include <set>
#include <vector>

#include "launch/recipe/recipe.h"
#include "models/task.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/data/data_shape.h"
#include "runtime/records/layer_log.h"

namespace shoal {

class SparseModel;
struct SparsePlan;
struct SparseScope;

/// A model built from a recipe, with parameters initialised from the recipe's seed.
struct BuiltModel {
  std::shared_ptr<Task> task;         ///< owns all modules
  std::vector<Parameter> parameters;  ///< of the task, in registration order
  std::vector<Parameter> buffers;     ///< saved with the parameters, not trained by gradients
  std::vector<std::shared_ptr<MoeStage>> stages;  ///< layers that route tokens, of all backbones
  std::shared_ptr<SparseModel> sparse;            ///< masks and permutations; null if not sparse
};

/// Where a model is built. By default on the meta device, where nothing is allocated or filled.
struct ModelPlace {
  RankGrid* grid = nullptr;  ///< ranks that share the experts; may be null on meta
  torch::Device device = torch::kMeta;
};

/// Throws ConfigError (exit 11) that names a stage with more units (experts or memory units) than a
/// device of this kind supports.
void check_units(const std::vector<std::shared_ptr<MoeStage>>& stages, torch::Device device);

/// Builds the task and its backbones for samples of this shape; parameters that optimizer.rules
/// freeze require no gradient. `unit_load`: logged loads of experts, for parallel.placement
/// by_load. `plan`: the weights that an earlier build, on any ranks, made sparse; null: chosen
/// anew. Throws ConfigError for options that do not fit the data or the device.
BuiltModel build_model(const Recipe& recipe, const DataShape& data, const ModelPlace& place = {},
                       const UnitLoads& unit_load = {}, const SparsePlan* plan = nullptr);

/// Input of plan_sparsity, which chooses sparse layers. Refers to task and parameters of `model`.
SparseScope sparse_scope(const Recipe& recipe, const BuiltModel& model);

/// The stage whose units a stacked parameter holds (one slice per unit); null for other parameters.
/// Throws std::logic_error if no stage owns the stack.
std::shared_ptr<MoeStage> stage_of(const Parameter& parameter, const BuiltModel& model);

/// What the backbones and sparse layers log beside the metrics of every step.
LayerLogs layer_logs_of(const BuiltModel& model);

/// Modules that no gradient trains, such as a momentum encoder (Task::untrained), with submodules.
std::set<const torch::nn::Module*> untrained_modules(const Task& task);

}  // namespace shoal
