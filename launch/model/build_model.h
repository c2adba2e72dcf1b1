#pragma once

#include <torch/types.h>

#include <memory>
#include <set>
#include <vector>

#include "launch/recipe/recipe.h"
#include "models/task.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/data/data_source.h"

namespace shoal {

class SparseModel;
class TokenGateImpl;
struct SparsePlan;
struct SparseScope;

/// A model built from a recipe, with parameters initialised from the recipe's seed.
struct BuiltModel {
  std::shared_ptr<Task> task;         ///< owns all modules
  std::vector<Parameter> parameters;  ///< of the task, in registration order
  std::vector<Parameter> buffers;     ///< saved with parameters, not trained by gradients
  std::vector<std::shared_ptr<MoeStage>> stages;  ///< MoE stages of all its backbones
  std::shared_ptr<SparseModel> sparse;            ///< null without `sparsity`
};

/// Where a model is: by default on meta, where nothing is allocated or filled.
struct ModelPlace {
  RankGrid* grid = nullptr;  ///< null: on meta alone
  torch::Device device = torch::kMeta;
};

/// Throws ConfigError (exit 11) that names a stage with more units than this kind of device
/// supports.
void check_units(const std::vector<std::shared_ptr<MoeStage>>& stages, torch::Device device);

/// Builds the task and its backbones for samples of this shape; parameters that optimizer.rules
/// freeze require no gradient. `unit_load`: for parallel.placement by_load. `plan`: of the recipe's
/// model where it was built before, on any ranks; null: it is made. Throws ConfigError, also as
/// check_units.
BuiltModel build_model(const Recipe& recipe, const DataShape& data, const ModelPlace& place = {},
                       const UnitLoads& unit_load = {}, const SparsePlan* plan = nullptr);

/// What decides which layers of the recipe's model are sparse. `model` has its task and parameters.
SparseScope sparse_scope(const Recipe& recipe, const BuiltModel& model);

/// The stage that owns a stacked parameter of its units; null for other parameters. Throws
/// std::logic_error if no stage owns the stack.
std::shared_ptr<MoeStage> stage_of(const Parameter& parameter, const BuiltModel& model);

/// What its backbones and sparse layers log.
LayerLogs layer_logs_of(const BuiltModel& model);

/// All modules in Task::untrained, recursively.
std::set<const torch::nn::Module*> untrained_modules(const Task& task);

}  // namespace shoal
