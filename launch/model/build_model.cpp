#include "launch/model/build_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "moe/moe_layer.h"
#include "runtime/base/error.h"
#include "runtime/base/size_limits.h"
#include "sparse/sparse_model.h"

namespace shoal {

void check_units(const std::vector<std::shared_ptr<MoeStage>>& stages, torch::Device device) {
  if (!device.is_cuda()) return;
  for (const auto& stage : stages) {
    const bool routes_tokens = std::dynamic_pointer_cast<MoeLayer>(stage) != nullptr;
    const int64_t num_units = stage->info().num_units;
    if (!routes_tokens || num_units <= kMostUnitsOnGpu) continue;
    throw ConfigError(fmt::format("{}: {} units, a GPU routes to at most {}; lower experts.count, "
                                  "or set run.device=cpu",
                                  stage->path(), num_units, kMostUnitsOnGpu),
                      ExitCode::kTopology);
  }
}

SparseScope sparse_scope(const Recipe& recipe, const BuiltModel& model) {
  Task& task = *model.task;
  SparseScope scope{.root = task, .parameters = model.parameters};
  const auto backbones = backbones_of(task);
  if (!backbones.empty()) scope.usual_layers = backbones.front()->sparse_layers();
  scope.dense = task.untrained();
  if (!scope.dense.empty()) scope.task_of_followers = recipe.task.name();
  for (const auto& child : task.named_children()) {
    if (child.key() == "head") scope.dense.push_back(child.value());
  }
  scope.compute_dtype = compute_dtype_of(recipe);
  scope.seed = static_cast<uint64_t>(recipe.run.seed);
  return scope;
}

BuiltModel build_model(const Recipe& recipe, const DataShape& data, const ModelPlace& place,
                       const UnitLoads& unit_load, const SparsePlan* plan) {
  ModelContext build;
  build.grid = place.grid;
  build.tensor_options = torch::TensorOptions().dtype(dtype_of(recipe)).device(place.device);
  build.compute_dtype = compute_dtype_of(recipe);
  build.recomputes = recipe.train.recompute;
  build.placement = recipe.parallel.placement;
  build.unit_load = unit_load;
  BuiltModel model;
  model.task = Registry<Task>::create(
      recipe.task, {build, data, backbone_factory(recipe.model.backbone, build, data)});
  model.stages = moe_stages_of(*model.task);
  check_units(model.stages, place.device);
  model.parameters = parameters_of(*model.task);
  const SparseScope scope = sparse_scope(recipe, model);
  SparsePlan sparse;
  if (recipe.sparsity) {
    sparse = plan != nullptr ? *plan : plan_sparsity(*recipe.sparsity, scope);
    add_low_rank_branches(sparse, scope);
    model.parameters = parameters_of(*model.task);
  }
  model.buffers = buffers_of(*model.task);
  freeze_parameters(rules_of(recipe.optimizer), model.parameters);
  if (!place.device.is_meta()) {
    initialise(model.parameters, static_cast<uint64_t>(recipe.run.seed));
    initialise(model.buffers, static_cast<uint64_t>(recipe.run.seed));
  }
  if (recipe.sparsity) {
    model.sparse = std::make_shared<SparseModel>(*recipe.sparsity, std::move(sparse), scope);
  }
  return model;
}

std::shared_ptr<MoeStage> stage_of(const Parameter& parameter, const BuiltModel& model) {
  if (!parameter.is_stacked()) return nullptr;
  for (const auto& stage : model.stages) {
    const std::string prefix = stage->path() + ".";
    const std::string& name = parameter.name;
    if (name.starts_with(prefix) || name.starts_with("backbone." + prefix)) return stage;
  }
  throw std::logic_error(parameter.name + " belongs to no MoE stage of its model");
}

LayerLogs layer_logs_of(const BuiltModel& model) {
  LayerLogs logs;
  for (const auto& backbone : backbones_of(*model.task)) {
    std::ranges::move(backbone->layer_logs(), std::back_inserter(logs));
  }
  if (model.sparse) std::ranges::move(model.sparse->layer_logs(), std::back_inserter(logs));
  return logs;
}

std::set<const torch::nn::Module*> untrained_modules(const Task& task) {
  std::set<const torch::nn::Module*> inside;
  for (const auto& root : task.untrained()) {
    for (const auto& module : root->modules()) inside.insert(module.get());
  }
  return inside;
}

}  // namespace shoal
